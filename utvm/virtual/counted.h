/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a core that C and Python share; jtag/core.py mirrors it. */
#ifndef UTVM_COUNTED_H
#define UTVM_COUNTED_H

#include <stdint.h>
#include <string.h>

enum { MEMORIES = 16, TRIGGERS = 8 };
enum { LOAD = 1, STORE = 2, EXECUTE = 4, BUT = 8 /* any other address */ };
/* From READ_COUNTER on, they depend on the architecture. */
enum reason { NONE, REQUEST, TRIGGER, SLEEP, BREAK, READ_COUNTER, ECALL, PASS = READ_COUNTER, UNALIGNED };

typedef struct {
  const uint8_t *bytes;
  uint64_t start, size;
} memory_t;

typedef struct {
  uint64_t address;
  uint32_t accesses, unused;
} trigger_t;

typedef struct {
  int32_t (*emulation_stop)(void *engine);
  int32_t (*register_read)(void *engine, int32_t number, void *value);
  uint64_t memory_count;
  memory_t memories[MEMORIES];
  trigger_t triggers[TRIGGERS];
  uint64_t count, deadline, begun, width; /* of a register, in bits */
  volatile uint32_t stop;
  uint32_t reason, masks_matter, triggered; /* accesses that any trigger matches */
  uint32_t fired, unused;                   /* number of the trigger that stopped the core */
  uint64_t target; /* data address of a refused instruction */
  uint64_t block_end; /* of instructions that are already counted and not interrupted */
} core_t;

static inline uint32_t fetch(const core_t *core, uint64_t address) {
  for (uint64_t i = 0; i < core->memory_count; i++) {
    const memory_t *const memory = &core->memories[i];
    const uint64_t offset = address - memory->start;
    uint32_t value = 0;
    if (offset < memory->size) {
      memcpy(&value, memory->bytes + offset, memory->size - offset >= 4 ? 4 : 2);
      return value;
    }
  }
  return 0;
}

static inline void stop_for(void *engine, core_t *core, enum reason reason) {
  core->reason = reason;
  core->emulation_stop(engine);
}

#endif
