/* SPDX-License-Identifier: Apache-2.0 */
/* See the header for the format. */
#include "framing.h"

#include "pipe.h"

#define ESCAPE 0xFFu
#define NOTHING 0xFEu
#define START 0xFDu
#define LENGTH_BYTES 4u
#define CRC_BYTES 2u
#define CRC_INITIAL 0xFFFFu
#define STAGE_BYTES 64u

static uint16_t add_to_crc(uint16_t crc, uint8_t byte) {
  /* Eight steps of the polynomial x^16 + x^12 + x^5 + 1 at once. */
  uint32_t high = ((uint32_t)crc >> 8) ^ byte;
  high ^= high >> 4;
  return (uint16_t)(((uint32_t)crc << 8) ^ (high << 12) ^ (high << 5) ^ high);
}

void utvm_deframer_init(utvm_deframer_t *deframer, uint8_t *payload, uint32_t limit) {
  deframer->payload = payload;
  deframer->limit = limit;
  deframer->length = 0u;
  deframer->position = 0u;
  deframer->crc = 0u;
  deframer->sent_crc = 0u;
  deframer->in_packet = false;
  deframer->escaped = false;
  deframer->crc_errors = 0u;
  deframer->dropped = 0u;
}

static void drop(utvm_deframer_t *deframer) {
  if (deframer->in_packet) {
    deframer->dropped++;
    deframer->in_packet = false;
  }
}

static bool before_crc(const utvm_deframer_t *deframer) {
  return (deframer->position < LENGTH_BYTES) || ((deframer->position - LENGTH_BYTES) < deframer->length);
}

/* Handle an FF and the byte after it; return whether they are an escaped byte FF. */
static bool take_escaped(utvm_deframer_t *deframer, uint8_t byte) {
  bool is_data = false;
  if (byte == START) {
    drop(deframer);
    deframer->in_packet = true;
    deframer->length = 0u;
    deframer->position = 0u;
    deframer->sent_crc = 0u;
    deframer->crc = add_to_crc(add_to_crc(CRC_INITIAL, ESCAPE), START);
  } else if (byte == NOTHING) {
    if (before_crc(deframer)) {
      deframer->crc = add_to_crc(add_to_crc(deframer->crc, ESCAPE), NOTHING);
    }
  } else if (byte == ESCAPE) {
    is_data = deframer->in_packet;
    /* Between packets, the pairing of FF bytes is unknown: the next byte decides. */
    deframer->escaped = !is_data;
  } else {
    drop(deframer);
  }
  return is_data;
}

/* Take a byte of the length, the payload or the CRC; return whether the packet is complete and valid. */
static bool take_data(utvm_deframer_t *deframer, uint8_t byte) {
  const uint32_t position = deframer->position;
  bool complete = false;
  deframer->position++;
  if (position < LENGTH_BYTES) {
    deframer->length |= (uint32_t)byte << (8u * position);
    if ((position == (LENGTH_BYTES - 1u)) && (deframer->length > deframer->limit)) {
      drop(deframer);
    }
  } else if ((position - LENGTH_BYTES) < deframer->length) {
    deframer->payload[position - LENGTH_BYTES] = byte;
  } else if ((position - LENGTH_BYTES) == deframer->length) {
    deframer->sent_crc = byte;
  } else {
    deframer->in_packet = false;
    complete = ((uint32_t)deframer->sent_crc | ((uint32_t)byte << 8)) == deframer->crc;
    if (!complete) {
      deframer->crc_errors++;
    }
  }
  return complete;
}

bool utvm_deframer_take(utvm_deframer_t *deframer, uint8_t byte) {
  bool is_data = true;
  bool complete = false;
  bool was_escaped = deframer->escaped;
  if (was_escaped) {
    deframer->escaped = false;
    is_data = take_escaped(deframer, byte);
  } else if (byte == ESCAPE) {
    deframer->escaped = true;
    is_data = false;
  } else {
    /* An ordinary byte. */
  }
  if (is_data && deframer->in_packet) {
    if (before_crc(deframer)) {
      if (was_escaped) {
        deframer->crc = add_to_crc(deframer->crc, ESCAPE);
      }
      deframer->crc = add_to_crc(deframer->crc, byte);
    }
    complete = take_data(deframer, byte);
  }
  return complete;
}

void utvm_frame_after_reset(void) {
  const uint8_t nothing = NOTHING;
  utvm_pipe_write(&nothing, 1u);
}

uint16_t utvm_frame_begin(uint32_t payload_bytes) {
  const uint8_t start[2] = {ESCAPE, START};
  uint8_t length[LENGTH_BYTES];
  for (uint32_t index = 0u; index < LENGTH_BYTES; index++) {
    length[index] = (uint8_t)((payload_bytes >> (8u * index)) & 0xFFu);
  }
  utvm_pipe_write(start, 2u);
  return utvm_frame_add(add_to_crc(add_to_crc(CRC_INITIAL, ESCAPE), START), length, LENGTH_BYTES);
}

uint16_t utvm_frame_add(uint16_t crc, const uint8_t *bytes, uint32_t count) {
  uint8_t stage[STAGE_BYTES];
  uint32_t staged = 0u;
  uint16_t sum = crc;
  for (uint32_t index = 0u; index < count; index++) {
    if (bytes[index] == ESCAPE) {
      stage[staged] = ESCAPE;
      staged++;
      sum = add_to_crc(sum, ESCAPE);
    }
    stage[staged] = bytes[index];
    staged++;
    sum = add_to_crc(sum, bytes[index]);
    if (staged >= (STAGE_BYTES - 1u)) {
      utvm_pipe_write(stage, staged);
      staged = 0u;
    }
  }
  utvm_pipe_write(stage, staged);
  return sum;
}

void utvm_frame_end(uint16_t crc) {
  const uint8_t bytes[CRC_BYTES] = {(uint8_t)(crc & 0xFFu), (uint8_t)((uint32_t)crc >> 8)};
  (void)utvm_frame_add(0u, bytes, CRC_BYTES);
}
