/* SPDX-License-Identifier: Apache-2.0 */
/* The wire of the tests: what the runtime sends is kept, what it receives is found in one place. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "framing.h"
#include "pipe.h"

#define MOST 65536u

uint8_t wire_sent[MOST];
uint32_t wire_sent_count;
uint8_t wire_payload[MOST];
utvm_deframer_t wire_deframer;

uint8_t utvm_pipe_read(void) {
  return 0u;
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  (void)memcpy(&wire_sent[wire_sent_count], bytes, count);
  wire_sent_count += count;
}

void wire_send(const uint8_t *payload, uint32_t count, uint32_t first) {
  wire_sent_count = 0u;
  uint16_t crc = utvm_frame_begin(count);
  crc = utvm_frame_add(crc, payload, first);
  crc = utvm_frame_add(crc, &payload[first], count - first);
  utvm_frame_end(crc);
}

void wire_listen(uint32_t limit) {
  utvm_deframer_init(&wire_deframer, wire_payload, limit);
}

int32_t wire_take(uint8_t byte) {
  return utvm_deframer_take(&wire_deframer, byte) ? (int32_t)wire_deframer.length : -1;
}

uint32_t wire_crc_errors(void) {
  return wire_deframer.crc_errors;
}

uint32_t wire_dropped(void) {
  return wire_deframer.dropped;
}
