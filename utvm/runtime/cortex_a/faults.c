/* SPDX-License-Identifier: Apache-2.0 */
/* Stores a fault for the host (ARM DDI 0406C, B1.9 and B3.13). */
#include <stdbool.h>

#include "cortex_a.h"
#include "utvm.h"

#define STATUS_THUMB (1u << 5)

extern const uint32_t _utvm_stack_start[], _utvm_stack_end[];
extern uint32_t utvm_fault_frame[FRAME_WORDS];

void utvm_fault_record(const uint32_t *frame, uint32_t exception) {
  uint32_t status;
  uint32_t address;
  uint32_t word;
  utvm_fault_begin();
  utvm_fault.exception = exception;
  __asm__ volatile("mrc p15, 0, %0, c5, c0, 0" : "=r"(status)); /* DFSR */
  __asm__ volatile("mrc p15, 0, %0, c6, c0, 0" : "=r"(address)); /* DFAR */
  utvm_fault.status[0] = status;
  utvm_fault.status[1] = address;
  __asm__ volatile("mrc p15, 0, %0, c5, c0, 1" : "=r"(status)); /* IFSR */
  __asm__ volatile("mrc p15, 0, %0, c6, c0, 2" : "=r"(address)); /* IFAR */
  utvm_fault.status[2] = status;
  utvm_fault.status[3] = address;
  for (word = 0u; word < FRAME_WORDS; word++) {
    utvm_fault.registers[word] = frame[word];
  }
  if ((exception == EXCEPTION_UNDEFINED) && ((frame[FRAME_STATUS] & STATUS_THUMB) != 0u)) {
    /* In Thumb code, such as the C library, the link register is two bytes lower (table B1-7). */
    utvm_fault.registers[FRAME_PC] += 2u;
  }
  utvm_fault.registers_valid = 1u;
  /* After an overflow, the stack pointer is outside the stack: store the stack from its end. */
  const uint32_t sp = frame[FRAME_SP];
  const bool inside = (sp >= (uint32_t)_utvm_stack_start) && (sp < (uint32_t)_utvm_stack_end);
  utvm_fault_keep_stack(inside ? sp : (uintptr_t)_utvm_stack_start);
  utvm_fault_complete();
}
