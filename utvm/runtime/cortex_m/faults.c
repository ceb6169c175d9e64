/* What went wrong, kept where the host finds it (ARM DDI 0403E, B1.5.14 and B3.2.15). */
#include <stdbool.h>

#include "cortex_m.h"
#include "utvm.h"

volatile utvm_fault_t utvm_fault;

extern uint32_t _utvm_stack_start[], _utvm_stack_end[];

__attribute__((noinline)) void utvm_fault_stop(void) {
  for (;;) {
    __asm__ volatile("nop" ::: "memory");
  }
}

void utvm_fault_record(const uint32_t *frame, uint32_t exc_return) {
  uint32_t exception;
  uint32_t word;
  __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
  utvm_fault.exception = exception;
  utvm_fault.cfsr = SCB_CFSR;
  utvm_fault.hfsr = SCB_HFSR;
  utvm_fault.mmfar = SCB_MMFAR;
  utvm_fault.bfar = SCB_BFAR;
  utvm_fault.exc_return = exc_return;
  utvm_fault.sp = (uint32_t)frame;
  /* A stack that overflowed has its frame outside: reading it would fault again, and lock the core up. */
  const bool valid = (frame >= _utvm_stack_start) && (&frame[8] <= _utvm_stack_end);
  utvm_fault.frame_valid = 0;
  for (word = 0; word < 8u; word++) {
    utvm_fault.frame[word] = 0;
  }
  if (valid) {
    utvm_fault.frame_valid = 1;
    for (word = 0; word < 8u; word++) {
      utvm_fault.frame[word] = frame[word];
    }
  }
  utvm_fault.magic = UTVM_FAULT_MAGIC;
  utvm_fault_report();
  utvm_fault_stop();
}
