/* SPDX-License-Identifier: Apache-2.0 */
/* A VTA that is hardware, or that a model stands for behind the same registers: four blocks as Vivado's HLS makes them,
 * a page each. Programs see memory where it is, so buffers are contiguous and have the addresses that VTA needs. */
#include "bare_metal.h"
#include "core.h"
#include "utvm.h"
#include "vta_device.h"

#define FETCH UTVM_ACCELERATOR
#define LOAD (UTVM_ACCELERATOR + 0x1000u)
#define COMPUTE (UTVM_ACCELERATOR + 0x2000u)
#define STORE (UTVM_ACCELERATOR + 0x3000u)

#define CONTROL 0x00u
#define FETCH_COUNT 0x10u
#define FETCH_ADDRESS 0x18u
#define LOAD_INP 0x10u
#define LOAD_WGT 0x18u
#define COMPUTE_DONE 0x18u
#define COMPUTE_UOP 0x20u
#define COMPUTE_ACC 0x28u
#define STORE_OUT 0x10u

#define START 0x01u
#define START_AND_AGAIN 0x81u /* a block begins anew whenever it is done */

#define DONE 1u
/* What only a model says: it tells why behind the four pages. Hardware that fails is never done. */
#define REFUSED 2u
#define WHY (UTVM_ACCELERATOR + 0x4000u)
#define WHY_NUMBER 0x00u
#define WHY_VALUE 0x08u
#define WHY_LIMIT 0x10u
#define WHY_RULE 0x18u
#define RULE_BYTES 96u

/* What a run may take: this, and for each instruction a hundred thousand of VTA's cycles. */
#define PATIENCE_MS 100u
#define PATIENCE_MS_EACH 1u
/* Before its first instruction, VTA is done with those of the run before. */
#define BEGIN_US 1u

#define WINDOWS 64u

static struct {
  const void *data;
  size_t bytes;
} windows[WINDOWS];
static uint32_t window_count;

static uint32_t bases[VTA_MEMORIES];
static char rule[RULE_BYTES];

uint32_t vta_device_map(const void *data, size_t bytes) {
  if (window_count == WINDOWS) {
    return 0;
  }
  windows[window_count].data = data;
  windows[window_count].bytes = bytes;
  window_count++;
  return (uint32_t)(uintptr_t)data;
}

void vta_device_base(uint32_t memory, uint32_t address) {
  bases[memory] = address;
}

void vta_device_unmap(void) {
  window_count = 0;
}

/* Has what the CPU reads from now on be what VTA has stored. Lines are clean since before the run, those at the edges
 * too: nothing is lost. */
static void forget_stored(const vta_instruction *instructions, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (vta_get(&instructions[i], VTA_FIELD_OPCODE) == VTA_OPCODE_STORE) {
      const uint32_t bytes = vta_get(&instructions[i], VTA_STORE_X_SIZE) * VTA_OUT_ELEMENT_BYTES;
      const uint32_t stride = vta_get(&instructions[i], VTA_STORE_X_STRIDE) * VTA_OUT_ELEMENT_BYTES;
      uint32_t at = bases[VTA_OUT] + vta_get(&instructions[i], VTA_STORE_DRAM) * VTA_OUT_ELEMENT_BYTES;
      for (uint32_t y = 0; y < vta_get(&instructions[i], VTA_STORE_Y_SIZE); y++) {
        utvm_cache_forget((const void *)(uintptr_t)at, bytes);
        at += stride;
      }
    }
  }
}

/* Whoever stands for hardware that is not there has a breakpoint here: VTA has just been started. */
__attribute__((noinline)) void utvm_accelerator_rung(void);
void utvm_accelerator_rung(void) {
  __asm__ volatile("" ::: "memory");
}

static void start(const vta_instruction *instructions, uint32_t count) {
  UTVM_REGISTER(FETCH + FETCH_COUNT) = count;
  UTVM_REGISTER(FETCH + FETCH_ADDRESS) = (uint32_t)(uintptr_t)instructions;
  UTVM_REGISTER(LOAD + LOAD_INP) = bases[VTA_INP];
  UTVM_REGISTER(LOAD + LOAD_WGT) = bases[VTA_WGT];
  UTVM_REGISTER(COMPUTE + COMPUTE_UOP) = bases[VTA_UOP];
  UTVM_REGISTER(COMPUTE + COMPUTE_ACC) = bases[VTA_ACC];
  UTVM_REGISTER(STORE + STORE_OUT) = bases[VTA_OUT];
  /* Hardware's can only be read. */
  UTVM_REGISTER(COMPUTE + COMPUTE_DONE) = 0u;
  UTVM_REGISTER(FETCH + CONTROL) = START;
  UTVM_REGISTER(LOAD + CONTROL) = START_AND_AGAIN;
  UTVM_REGISTER(COMPUTE + CONTROL) = START_AND_AGAIN;
  UTVM_REGISTER(STORE + CONTROL) = START_AND_AGAIN;
  utvm_accelerator_rung();
}

/* Returns what VTA has come to: DONE, REFUSED, or 0 after it had all the time that there is. */
static uint32_t wait_for_end(uint32_t patience_ms) {
  const uint64_t begin = utvm_cycles();
  const uint64_t earliest = (uint64_t)BEGIN_US * UTVM_CLOCK_HZ / 1000000u;
  const uint64_t latest = (uint64_t)patience_ms * UTVM_CLOCK_HZ / 1000u;
  uint64_t passed;
  uint32_t end = 0;
  do {
    passed = utvm_cycles() - begin;
    if (passed > earliest) {
      end = UTVM_REGISTER(COMPUTE + COMPUTE_DONE) & (DONE | REFUSED);
    }
  } while (end == 0u && passed < latest);
  return end;
}

static int64_t wide(uint32_t at) {
  return (int64_t)((uint64_t)UTVM_REGISTER(at + 4u) << 32 | UTVM_REGISTER(at));
}

/* Says what a model has found. */
static void read_why(vta_fault *fault) {
  fault->number = (int32_t)UTVM_REGISTER(WHY + WHY_NUMBER);
  fault->value = wide(WHY + WHY_VALUE);
  fault->limit = wide(WHY + WHY_LIMIT);
  for (uint32_t i = 0; i < RULE_BYTES - 1u; i++) {
    rule[i] = (char)(UTVM_REGISTER(WHY + WHY_RULE + (i & ~3u)) >> 8u * (i & 3u));
  }
  fault->rule = rule;
}

int vta_device_run(const vta_instruction *instructions, uint32_t count, vta_fault *fault) {
  if (!utvm_port_start_accelerator()) {
    fault->rule = "the logic is empty: board.program-fpga";
    fault->value = 0;
    fault->limit = 0;
    fault->number = 0;
    fault->instruction = instructions[0];
    return -1;
  }
  for (uint32_t i = 0; i < window_count; i++) {
    utvm_cache_hand_over(windows[i].data, windows[i].bytes);
  }
  utvm_cache_hand_over(instructions, count * sizeof instructions[0]);
  start(instructions, count);
  const uint32_t patience_ms = PATIENCE_MS + (count * PATIENCE_MS_EACH);
  const uint32_t end = wait_for_end(patience_ms);
  if (end == DONE) {
    forget_stored(instructions, count);
    return 0;
  }
  fault->rule = "VTA has not answered after milliseconds";
  fault->value = patience_ms;
  fault->limit = patience_ms;
  fault->number = (int32_t)count - 1;
  if (end != 0u) {
    read_why(fault);
  }
  if (fault->number >= 0 && (uint32_t)fault->number < count) {
    fault->instruction = instructions[fault->number];
  }
  return -1;
}
