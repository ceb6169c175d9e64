/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to the host is a pair of buffers in memory that a debug probe reads and writes while the core runs:
 * SEGGER's Real Time Transfer. Layout and meaning of the control block: SEGGER UM08001, chapter "RTT", section
 * "RTT control block"; the code is not SEGGER's.
 *
 * The buffers must be in memory without a data cache, so that the probe sees them. The core gets no interrupt when
 * the host has written, so it polls while it waits.
 */
#include <stdbool.h>
#include <stddef.h>

#include "core.h"
#include "pipe.h"

#define ID_BYTES 16u
#define UP_BYTES 1024u
/* OpenOCD drops bytes that do not fit: the longest request fits, with each byte escaped as two, and its frame. */
#define DOWN_BYTES ((2u * UTVM_RPC_PACKET_BYTES) + 64u)
#define WAIT_WHERE_FULL 2u /* for up buffers: nothing is skipped, nothing is cut short */

/* The writer moves "in", the reader "out"; they are equal if the buffer is empty. */
typedef struct {
  const char *name;
  volatile uint8_t *bytes;
  uint32_t size;
  uint32_t in;
  uint32_t out;
  uint32_t flags;
} ring_t;

typedef struct {
  char id[ID_BYTES];
  int32_t up_count;
  int32_t down_count;
  ring_t up;
  ring_t down;
} control_block_t;

static volatile uint8_t up_bytes[UP_BYTES];
static volatile uint8_t down_bytes[DOWN_BYTES];

/* The host finds it by its symbol. Start-up code clears it. */
static volatile control_block_t utvm_rtt;

static void fill_ring(volatile ring_t *ring, volatile uint8_t *bytes, uint32_t size) {
  ring->name = "utvm";
  ring->bytes = bytes;
  ring->size = size;
  ring->flags = WAIT_WHERE_FULL;
}

static uint32_t after(uint32_t place, uint32_t size) {
  return ((place + 1u) == size) ? 0u : (place + 1u);
}

static void prepare(void) {
  /* Stored backwards, so that tools that search memory for the id find only the control block. */
  static const char backwards[] = "TTR REGGES";
  static bool prepared;
  if (!prepared) {
    const uint32_t letters = (uint32_t)sizeof backwards - 1u;
    prepared = true;
    utvm_rtt.up_count = 1;
    utvm_rtt.down_count = 1;
    fill_ring(&utvm_rtt.up, up_bytes, UP_BYTES);
    fill_ring(&utvm_rtt.down, down_bytes, DOWN_BYTES);
    utvm_memory_barrier();
    /* The first letter is written last: the id is valid only when the whole block is. */
    for (uint32_t index = 0u; index < letters; index++) {
      utvm_rtt.id[letters - 1u - index] = backwards[index];
    }
    utvm_memory_barrier();
  }
}

uint8_t utvm_pipe_read(void) {
  volatile ring_t *const ring = &utvm_rtt.down;
  prepare();
  const uint32_t place = ring->out;
  while (ring->in == place) {
    /* nothing received */
  }
  utvm_memory_barrier();
  const uint8_t byte = down_bytes[place];
  utvm_memory_barrier();
  ring->out = after(place, DOWN_BYTES);
  return byte;
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  volatile ring_t *const ring = &utvm_rtt.up;
  prepare();
  for (uint32_t index = 0u; index < count; index++) {
    const uint32_t place = ring->in;
    const uint32_t next = after(place, UP_BYTES);
    while (ring->out == next) {
      /* full */
    }
    up_bytes[place] = bytes[index];
    utvm_memory_barrier();
    ring->in = next;
  }
}
