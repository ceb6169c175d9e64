/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Operations of the core for the shared files, in its own instructions (ARM DDI 0403E, A7.7 and B1.4).
 */
#ifndef UTVM_CORE_H
#define UTVM_CORE_H

#include <stdbool.h>
#include <stdint.h>

/** Disable interrupts. */
static inline void utvm_disable_interrupts(void) {
  __asm__ volatile("cpsid i" ::: "memory");
}

/** Enable interrupts. */
static inline void utvm_enable_interrupts(void) {
  __asm__ volatile("cpsie i" ::: "memory");
}

/** With interrupts disabled: sleep until one is pending; return at once if one already is. */
static inline void utvm_sleep(void) {
  __asm__ volatile("dsb\n wfi" ::: "memory");
}

/** Whether the core handles an exception. */
static inline bool utvm_in_handler(void) {
  uint32_t exception;
  __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
  return exception != 0u;
}

/** Make memory accesses visible to others in program order. */
static inline void utvm_memory_barrier(void) {
  __asm__ volatile("dmb" ::: "memory");
}

/** Ask the debugger to do something (Arm, "Semihosting for AArch32 and AArch64", 2.0: BKPT 0xAB). */
static inline uintptr_t utvm_semihosting(uintptr_t operation, const uintptr_t *arguments) {
  uintptr_t result;
  __asm__ volatile("mov r0, %1\n"
                   "mov r1, %2\n"
                   "bkpt 0xab\n"
                   "mov %0, r0"
                   : "=r"(result)
                   : "r"(operation), "r"(arguments)
                   : "r0", "r1", "memory");
  return result;
}

#endif
