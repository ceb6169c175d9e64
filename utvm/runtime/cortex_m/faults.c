/* What went wrong, kept where the host finds it (ARM DDI 0403E, B1.5.14 and B3.2.15). */
#include <stdbool.h>

#include "cortex_m.h"
#include "utvm.h"

extern uint32_t _utvm_stack_start[], _utvm_stack_end[];

/* r4 to r11: the handler's first instructions put them there. */
uint32_t utvm_fault_saved[8];

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = utvm_fault.stack_bytes;
  return (const uint8_t *)utvm_fault.stack;
}

/* What the C library's assert() calls. */
void __assert_func(const char *file, int line, const char *function, const char *expression);
void __assert_func(const char *file, int line, const char *function, const char *expression) {
  (void)function;
  utvm_assertion_failed(file, line, expression);
}

__attribute__((noinline)) void utvm_fault_stop(void) {
  for (;;) {
    __asm__ volatile("nop" ::: "memory");
  }
}

void utvm_fault_record(const uint32_t *frame, uint32_t exc_return) {
  uint32_t exception;
  uint32_t word;
  __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
  utvm_fault_begin();
  for (word = 0; word < 8u; word++) {
    utvm_fault.saved[word] = utvm_fault_saved[word];
  }
  utvm_fault.exception = exception;
  utvm_fault.cfsr = SCB_CFSR;
  utvm_fault.hfsr = SCB_HFSR;
  utvm_fault.mmfar = SCB_MMFAR;
  utvm_fault.bfar = SCB_BFAR;
  utvm_fault.exc_return = exc_return;
  utvm_fault.sp = (uint32_t)frame;
  /* A stack that overflowed has its frame outside: reading it would fault again, and lock the core up. */
  const bool valid = (frame >= _utvm_stack_start) && (&frame[8] <= _utvm_stack_end);
  const uint32_t *stack = valid ? frame : _utvm_stack_start;
  const uint32_t left = (uint32_t)((uintptr_t)_utvm_stack_end - (uintptr_t)stack);
  utvm_fault.stack = (uint32_t)stack;
  utvm_fault.stack_bytes = (left < UTVM_FAULT_STACK_BYTES) ? left : UTVM_FAULT_STACK_BYTES;
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
