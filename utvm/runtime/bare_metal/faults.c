/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a fault record that are the same on every architecture, and its end. */
#include "bare_metal.h"
#include "utvm.h"

extern const uint8_t _utvm_stack_end[];

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = utvm_fault.stack_bytes;
  return (const uint8_t *)(uintptr_t)utvm_fault.stack;
}

/* Called by the C library's assert(). */
void __assert_func(const char *file, int line, const char *function, const char *expression);
void __assert_func(const char *file, int line, const char *function, const char *expression) {
  (void)function;
  utvm_assertion_failed(file, line, expression);
}

void utvm_fault_keep_stack(uintptr_t from) {
  const uint32_t left = (uint32_t)((uintptr_t)_utvm_stack_end - from);
  utvm_fault.stack = from;
  utvm_fault.stack_bytes = (left < UTVM_FAULT_STACK_BYTES) ? left : UTVM_FAULT_STACK_BYTES;
}

void utvm_fault_complete(void) {
  utvm_fault.magic = UTVM_FAULT_MAGIC;
  utvm_fault_report();
  utvm_fault_stop();
}

__attribute__((noinline)) void utvm_fault_stop(void) {
  for (;;) {
    __asm__ volatile("nop" ::: "memory");
  }
}
