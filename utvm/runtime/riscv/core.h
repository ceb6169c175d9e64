/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Operations of the core for the shared files, in its own instructions (RISC-V Instruction Set Manual, Volume I: 2.7, 9.1;
 * Volume II, 3.3.3).
 */
#ifndef UTVM_CORE_H
#define UTVM_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "riscv.h"

/** Disable interrupts. */
static inline void utvm_disable_interrupts(void) {
  __asm__ volatile("csrc mstatus, %0" ::"i"(MSTATUS_MIE) : "memory");
}

/** Enable interrupts. */
static inline void utvm_enable_interrupts(void) {
  __asm__ volatile("csrs mstatus, %0" ::"i"(MSTATUS_MIE) : "memory");
}

/** With interrupts disabled: sleep until one is pending; return at once if one already is. */
static inline void utvm_sleep(void) {
  __asm__ volatile("wfi" ::: "memory");
}

/** Whether the core handles an exception. */
static inline bool utvm_in_handler(void) {
  return utvm_in_fault;
}

/** Make memory accesses visible to others in program order. */
static inline void utvm_memory_barrier(void) {
  __asm__ volatile("fence rw, rw" ::: "memory");
}

#endif
