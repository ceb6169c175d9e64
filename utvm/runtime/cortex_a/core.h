/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Operations of the core for the shared files, in its own instructions (ARM DDI 0406C, A8.8 and B9.3).
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

/** Whether the core handles an exception: programs run in System mode; interrupt handlers do not call this. */
static inline bool utvm_in_handler(void) {
  uint32_t status;
  __asm__ volatile("mrs %0, cpsr" : "=r"(status));
  return (status & 0x1Fu) != 0x1Fu;
}

#endif
