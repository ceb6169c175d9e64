/* SPDX-License-Identifier: Apache-2.0 */
/* See the header for the protocol. */
#include "packet.h"

#include <stddef.h>
#include <string.h>

#define DEVICE_BYTES 8u
#define DATA_TYPE_BYTES 8u
#define BITS_A_BYTE 8u

uint64_t utvm_read(utvm_reader_t *reader, uint32_t bytes) {
  const uint8_t *found = utvm_read_bytes(reader, bytes);
  uint64_t number = 0u;
  if (found != NULL) {
    for (uint32_t index = 0u; index < bytes; index++) {
      const uint32_t shift = BITS_A_BYTE * index;
      number |= (uint64_t)found[index] << shift;
    }
  }
  return number;
}

const uint8_t *utvm_read_bytes(utvm_reader_t *reader, uint64_t count) {
  const uint8_t *found = NULL;
  if (reader->failed || (count > reader->left)) {
    reader->failed = true;
  } else {
    found = reader->bytes;
    reader->bytes = &reader->bytes[count];
    reader->left -= (uint32_t)count;
  }
  return found;
}

void utvm_read_tensor(utvm_reader_t *reader, utvm_tensor_t *tensor) {
  uint64_t elements = 1u;
  tensor->address = utvm_read(reader, 8u);
  (void)utvm_read_bytes(reader, DEVICE_BYTES);
  tensor->dimensions = (int32_t)(uint32_t)utvm_read(reader, 4u);
  tensor->code = (uint8_t)utvm_read(reader, 1u);
  tensor->bits = (uint8_t)utvm_read(reader, 1u);
  tensor->lanes = (uint16_t)utvm_read(reader, 2u);
  if ((tensor->dimensions < 0) || (tensor->dimensions > UTVM_DIMENSIONS)) {
    tensor->dimensions = 0;
    reader->failed = true;
  }
  for (int32_t index = 0; index < tensor->dimensions; index++) {
    const uint64_t extent = utvm_read(reader, 8u);
    tensor->shape[index] = (int64_t)extent;
    /* More than any board has: prevents an overflow. */
    if ((extent > UINT32_MAX) || ((elements * extent) > UINT32_MAX)) {
      reader->failed = true;
    } else {
      elements *= extent;
    }
  }
  tensor->address += utvm_read(reader, 8u);
  tensor->bytes = ((elements * tensor->bits * tensor->lanes) + (BITS_A_BYTE - 1u)) / BITS_A_BYTE;
}

static void read_text(utvm_reader_t *reader, utvm_value_t *value) {
  const uint64_t length = utvm_read(reader, 8u);
  value->bytes = utvm_read_bytes(reader, length);
  value->length = reader->failed ? 0u : (uint32_t)length;
}

static void read_value(utvm_reader_t *reader, utvm_value_t *value) {
  (void)memset(value, 0, sizeof *value);
  value->type = (int32_t)(uint32_t)utvm_read(reader, 4u);
  switch (value->type) {
  case UTVM_TYPE_NONE:
    break;
  case UTVM_TYPE_INTEGER:
  case UTVM_TYPE_BOOL:
  case UTVM_TYPE_FLOAT:
  case UTVM_TYPE_HANDLE:
  case UTVM_TYPE_FUNCTION:
  case UTVM_TYPE_MODULE:
    value->number = utvm_read(reader, 8u);
    break;
  case UTVM_TYPE_DATA_TYPE:
    (void)utvm_read_bytes(reader, DATA_TYPE_BYTES);
    break;
  case UTVM_TYPE_DEVICE:
    (void)utvm_read_bytes(reader, DEVICE_BYTES);
    break;
  case UTVM_TYPE_TENSOR:
    utvm_read_tensor(reader, &value->tensor);
    break;
  case UTVM_TYPE_RAW_TEXT:
  case UTVM_TYPE_RAW_BYTES:
    read_text(reader, value);
    break;
  case UTVM_TYPE_SMALL_TEXT:
  case UTVM_TYPE_SMALL_BYTES:
  case UTVM_TYPE_TEXT:
  case UTVM_TYPE_BYTES:
    /* The type is repeated, as the object's. */
    value->type = (int32_t)(uint32_t)utvm_read(reader, 4u);
    read_text(reader, value);
    break;
  default:
    reader->failed = true;
    break;
  }
}

uint32_t utvm_read_values(utvm_reader_t *reader, utvm_value_t *values) {
  uint32_t count = (uint32_t)utvm_read(reader, 4u);
  if (count > (uint32_t)UTVM_ARGUMENTS) {
    reader->failed = true;
    count = 0u;
  }
  for (uint32_t index = 0u; index < count; index++) {
    read_value(reader, &values[index]);
  }
  return count;
}

void utvm_split(uint8_t *bytes, uint64_t number, uint32_t count) {
  for (uint32_t index = 0u; index < count; index++) {
    const uint32_t shift = BITS_A_BYTE * index;
    bytes[index] = (uint8_t)((number >> shift) & 0xFFu);
  }
}

void utvm_write(utvm_writer_t *writer, uint64_t number, uint32_t bytes) {
  uint8_t split[8];
  utvm_split(split, number, bytes);
  utvm_write_bytes(writer, split, bytes);
}

void utvm_write_bytes(utvm_writer_t *writer, const uint8_t *bytes, uint32_t count) {
  if (writer->failed || (count > (writer->limit - writer->used))) {
    writer->failed = true;
  } else if (count > 0u) {
    (void)memcpy(&writer->bytes[writer->used], bytes, count);
    writer->used += count;
  } else {
    /* Nothing to do. */
  }
}

static void write_head(utvm_writer_t *writer, uint32_t code, uint32_t values) {
  writer->used = 0u;
  writer->failed = false;
  utvm_write(writer, code, 4u);
  utvm_write(writer, values, 4u);
}

static void write_value(utvm_writer_t *writer, int32_t type, uint64_t number) {
  utvm_write(writer, (uint32_t)type, 4u);
  if (type != UTVM_TYPE_NONE) {
    utvm_write(writer, number, 8u);
  }
}

void utvm_write_answer(utvm_writer_t *writer, int32_t type, uint64_t number) {
  write_head(writer, UTVM_RPC_RETURN, 1u);
  write_value(writer, type, number);
}

void utvm_write_result(utvm_writer_t *writer, int32_t type, uint64_t number) {
  /* A call's result is preceded by its type, as a number. Functions and modules are sent as handles. */
  const bool object = (type == UTVM_TYPE_FUNCTION) || (type == UTVM_TYPE_MODULE);
  write_head(writer, UTVM_RPC_RETURN, 2u);
  write_value(writer, UTVM_TYPE_INTEGER, (uint32_t)type);
  write_value(writer, object ? UTVM_TYPE_HANDLE : type, number);
}

void utvm_write_result_bytes(utvm_writer_t *writer, int32_t type, const uint8_t *bytes, uint32_t count) {
  write_head(writer, UTVM_RPC_RETURN, 2u);
  write_value(writer, UTVM_TYPE_INTEGER, (uint32_t)type);
  write_value(writer, (type == UTVM_TYPE_TEXT) ? UTVM_TYPE_RAW_TEXT : UTVM_TYPE_RAW_BYTES, count);
  utvm_write_bytes(writer, bytes, count);
}

void utvm_write_exception(utvm_writer_t *writer, const uint8_t *text, uint32_t count) {
  write_head(writer, UTVM_RPC_EXCEPTION, 1u);
  write_value(writer, UTVM_TYPE_RAW_TEXT, count);
  utvm_write_bytes(writer, text, count);
}
