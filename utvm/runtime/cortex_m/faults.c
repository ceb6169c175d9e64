/* SPDX-License-Identifier: Apache-2.0 */
/* Stores a fault for the host (ARM DDI 0403E, B1.5.6, B1.5.14 and B3.2.15). */
#include <stdbool.h>

#include "cortex_m.h"
#include "utvm.h"

#define FRAME_WORDS 8u
#define FLOAT_FRAME_WORDS 26u
#define FRAME_XPSR 7u
#define XPSR_STACK_ALIGNED 0x200u
#define EXC_RETURN_NO_FLOAT 0x10u
#define FIRST_SAVED 4u /* r4, of r4 to r11 */
#define STACK_POINTER 13u

extern uint32_t _utvm_stack_start[], _utvm_stack_end[];

/* r4 to r11, stored by the handler's first instructions. */
uint32_t utvm_fault_saved[8];

/* The stack pointer before the exception pushed its frame (ARM DDI 0403E, B1.5.7). */
static uint32_t stack_pointer_before(const uint32_t *frame, uint32_t exc_return) {
  uint32_t words = FLOAT_FRAME_WORDS;
  if ((exc_return & EXC_RETURN_NO_FLOAT) != 0u) {
    words = FRAME_WORDS;
  }
  if ((frame[FRAME_XPSR] & XPSR_STACK_ALIGNED) != 0u) {
    words++;
  }
  return (uint32_t)(uintptr_t)&frame[words];
}

void utvm_fault_record(const uint32_t *frame, uint32_t exc_return) {
  /* DWARF numbers of the frame's words: r0 to r3, r12, lr, pc; xpsr follows them. */
  static const uint8_t places[FRAME_WORDS] = {0u, 1u, 2u, 3u, 12u, 14u, 15u, 16u};
  uint32_t exception;
  uint32_t word;
  __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
#ifdef UTVM_STACK_GUARD
  /* The stack guard is no longer needed, and would hide the stack from a debugger. */
  MPU_CTRL = 0u;
#endif
  utvm_fault_begin();
  utvm_fault.exception = exception;
#ifndef UTVM_BASELINE
  utvm_fault.status[0] = SCB_CFSR;
  utvm_fault.status[1] = SCB_HFSR;
  utvm_fault.status[2] = SCB_MMFAR;
  utvm_fault.status[3] = SCB_BFAR;
#endif
  utvm_fault.status[4] = exc_return;
  /* After a stack overflow, the frame is outside the stack: reading it would fault again, and lock up the core. */
  bool valid = (frame >= _utvm_stack_start) && (&frame[FRAME_WORDS] <= _utvm_stack_end);
#ifdef __ARM_ARCH_8M_MAIN__
  /* After a stack limit fault, there is no frame. */
  valid = valid && ((utvm_fault.status[0] & CFSR_STKOF) == 0u);
#endif
  utvm_fault_keep_stack((uintptr_t)(valid ? frame : _utvm_stack_start));
  utvm_fault.registers[STACK_POINTER] = valid ? stack_pointer_before(frame, exc_return) : (uintptr_t)frame;
  if (valid) {
    utvm_fault.registers_valid = 1u;
    for (word = 0; word < FRAME_WORDS; word++) {
      utvm_fault.registers[places[word]] = frame[word];
      utvm_fault.registers[FIRST_SAVED + word] = utvm_fault_saved[word];
    }
  }
  utvm_fault_complete();
}
