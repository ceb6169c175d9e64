/* SPDX-License-Identifier: Apache-2.0 */
/* Handles one request at a time; errors become exceptions of the client. */
#include "server.h"

#include <stddef.h>
#include <string.h>

#include "evaluators.h"
#include "functions.h"
#include "memory.h"
#include "model_functions.h"
#include "packet.h"
#include "text.h"
#include "utvm.h"

static utvm_value_t values[UTVM_ARGUMENTS];
static utvm_text_t error;
static uint32_t calls_made;

void utvm_server_reset(void) {
  utvm_memory_init(utvm_heap_start, (uint32_t)(utvm_heap_end - utvm_heap_start));
  utvm_functions_reset();
  utvm_evaluators_reset();
  utvm_models_reset();
}

uint32_t utvm_server_calls(void) {
  return calls_made;
}

static bool starts_session(utvm_reader_t *reader, utvm_writer_t *reply) {
  const uint64_t length = utvm_read(reader, 8u);
  const uint8_t *version = utvm_read_bytes(reader, length);
  bool good = false;
  if (version == NULL) {
    utvm_text_add(&error, "the request for a session is broken");
  } else if (!utvm_text_is(UTVM_RPC_PROTOCOL, version, (uint32_t)length)) {
    utvm_text_add(&error, "the board speaks RPC protocol " UTVM_RPC_PROTOCOL ", the client ");
    utvm_text_add_bytes(&error, version, (uint32_t)length);
  } else if ((utvm_read_values(reader, values) != 0u) || reader->failed) {
    utvm_text_add(&error, "a board has no session constructors");
  } else {
    utvm_server_reset();
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
    good = true;
  }
  return good;
}

static bool calls(utvm_reader_t *reader, utvm_writer_t *reply) {
  const uint64_t handle = utvm_read(reader, 8u);
  const uint32_t count = utvm_read_values(reader, values);
  const utvm_call_t call = {values, count, reply, &error};
  bool good = false;
  if (reader->failed) {
    utvm_text_add(&error,
                  "the call has more than 16 arguments, one of a type that boards do not know, or is broken");
  } else {
    calls_made++;
    good = utvm_handle_call(handle, &call);
  }
  return good;
}

static bool copies_from(utvm_reader_t *reader, utvm_writer_t *reply) {
  utvm_tensor_t tensor;
  utvm_read_tensor(reader, &tensor);
  const uint64_t bytes = utvm_read(reader, 8u);
  const uint8_t *source = NULL;
  if (reader->failed || (bytes > (reply->limit - 4u))) {
    utvm_text_add(&error, "a copy from the board is broken, or longer than a packet");
  } else {
    source = utvm_tensor_bytes(&tensor, bytes, &error);
  }
  if (source != NULL) {
    utvm_write(reply, UTVM_RPC_COPY_ACK, 4u);
    utvm_write_bytes(reply, source, (uint32_t)bytes);
  }
  return source != NULL;
}

static bool copies_to(utvm_reader_t *reader, utvm_writer_t *reply) {
  utvm_tensor_t tensor;
  utvm_read_tensor(reader, &tensor);
  const uint64_t bytes = utvm_read(reader, 8u);
  const uint8_t *source = utvm_read_bytes(reader, bytes);
  uint8_t *target = NULL;
  if (source == NULL) {
    utvm_text_add(&error, "a copy to the board is broken");
  } else {
    target = utvm_tensor_bytes(&tensor, bytes, &error);
  }
  if (target != NULL) {
    (void)memcpy(target, source, (size_t)bytes);
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
  }
  return target != NULL;
}

/* The C library's memmove() takes 250 bytes of flash, and nothing else needs it. */
static void move(uint8_t *target, const uint8_t *source, uint32_t count) {
  const bool down = (uintptr_t)target > (uintptr_t)source;
  for (uint32_t done = 0u; done < count; done++) {
    const uint32_t index = down ? (count - 1u - done) : done;
    target[index] = source[index];
  }
}

static bool copies_among(uint32_t count, utvm_writer_t *reply) {
  const uint8_t *source = NULL;
  uint8_t *target = NULL;
  if ((count < 2u) || (values[0].type != UTVM_TYPE_TENSOR) || (values[1].type != UTVM_TYPE_TENSOR) ||
      (values[0].tensor.bytes != values[1].tensor.bytes)) {
    utvm_text_add(&error, "a copy on the board needs two tensors of one size");
  } else {
    source = utvm_tensor_bytes(&values[0].tensor, values[0].tensor.bytes, &error);
    target = utvm_tensor_bytes(&values[1].tensor, values[1].tensor.bytes, &error);
  }
  if ((source != NULL) && (target != NULL)) {
    move(target, source, (uint32_t)values[0].tensor.bytes);
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
  }
  return (source != NULL) && (target != NULL);
}

static bool allocates(uint64_t bytes, utvm_writer_t *reply) {
  const uint8_t *block = (bytes <= UINT32_MAX) ? utvm_memory_take((uint32_t)bytes) : NULL;
  if (block == NULL) {
    utvm_text_add(&error, "the board has no room for a tensor of ");
    utvm_text_add_number(&error, (int64_t)bytes);
    utvm_text_add(&error, " bytes: the largest that it can take now has ");
    utvm_text_add_number(&error, (int64_t)utvm_memory_largest());
  } else {
    utvm_write_answer(reply, UTVM_TYPE_HANDLE, (uint64_t)(uintptr_t)block);
  }
  return block != NULL;
}

static bool frees(uint64_t address, utvm_writer_t *reply) {
  const bool good = (address <= UINTPTR_MAX) && utvm_memory_give((const uint8_t *)(uintptr_t)address);
  if (good) {
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
  } else {
    utvm_text_add(&error, "the tensor to be freed is not in use: it has been freed before, or never was");
  }
  return good;
}

static bool gets_function(uint32_t count, utvm_writer_t *reply) {
  const bool good = (count == 1u) && (values[0].bytes != NULL);
  if (good) {
    utvm_write_answer(reply, UTVM_TYPE_HANDLE, utvm_function_find(values[0].bytes, values[0].length));
  } else {
    utvm_text_add(&error, "a function is asked for by its name");
  }
  return good;
}

static bool frees_handle(uint64_t handle, utvm_writer_t *reply) {
  const bool good = utvm_handle_free(handle);
  if (good) {
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
  } else {
    utvm_text_add(&error, "the handle to be freed is not in use");
  }
  return good;
}

/* Requests to the session itself: all have a sequence of arguments. */
static bool serves(uint32_t code, utvm_reader_t *reader, utvm_writer_t *reply) {
  const uint32_t count = utvm_read_values(reader, values);
  bool good = !reader->failed;
  if (!good) {
    utvm_text_add(&error, "the arguments of a request are broken");
  } else if (code == (uint32_t)UTVM_RPC_GET_FUNCTION) {
    good = gets_function(count, reply);
  } else if ((code == (uint32_t)UTVM_RPC_FREE_HANDLE) && (count == 1u)) {
    good = frees_handle(values[0].number, reply);
  } else if ((code == (uint32_t)UTVM_RPC_ALLOCATE) && (count >= 2u)) {
    good = allocates(values[1].number, reply);
  } else if ((code == (uint32_t)UTVM_RPC_ALLOCATE_TENSOR) && (count >= 1u) &&
             (values[0].type == UTVM_TYPE_TENSOR)) {
    good = allocates(values[0].tensor.bytes, reply);
  } else if ((code == (uint32_t)UTVM_RPC_FREE) && (count >= 2u)) {
    good = frees(values[1].number, reply);
  } else if (code == (uint32_t)UTVM_RPC_COPY_AMONG) {
    good = copies_among(count, reply);
  } else if ((code == (uint32_t)UTVM_RPC_SET_DEVICE) || (code == (uint32_t)UTVM_RPC_SYNCHRONISE) ||
             (code == (uint32_t)UTVM_RPC_GET_ATTRIBUTE)) {
    /* There is one device. Its operations are synchronous, and it has no attributes. */
    utvm_write_answer(reply, UTVM_TYPE_NONE, 0u);
  } else {
    utvm_text_add(&error, "boards do not know request ");
    utvm_text_add_number(&error, (int64_t)code);
    utvm_text_add(&error, ", or not with these arguments");
    good = false;
  }
  return good;
}

uint32_t utvm_server_answer(const uint8_t *request, uint32_t bytes, uint8_t *reply) {
  utvm_reader_t reader = {request, bytes, false};
  utvm_writer_t writer = {reply, 0u, UTVM_RPC_PACKET_BYTES, false};
  const uint32_t code = (uint32_t)utvm_read(&reader, 4u);
  bool good = true;
  utvm_text_clear(&error);
  switch (code) {
  case UTVM_RPC_SHUTDOWN:
    utvm_server_reset();
    break;
  case UTVM_RPC_INIT_SERVER:
    good = starts_session(&reader, &writer);
    break;
  case UTVM_RPC_CALL:
    good = calls(&reader, &writer);
    break;
  case UTVM_RPC_COPY_FROM:
    good = copies_from(&reader, &writer);
    break;
  case UTVM_RPC_COPY_TO:
    good = copies_to(&reader, &writer);
    break;
  default:
    good = serves(code, &reader, &writer);
    break;
  }
  if (good && writer.failed) {
    utvm_text_clear(&error);
    utvm_text_add(&error, "the answer is longer than a packet");
    good = false;
  }
  if (!good) {
    utvm_write_exception(&writer, error.bytes, error.length);
  }
  return writer.used;
}
