/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Shared by the architectures without an operating system. Each has a header core.h beside its own files, for
 * operations that need instructions of its own.
 */
#ifndef UTVM_BARE_METAL_H
#define UTVM_BARE_METAL_H

/** Unused stack holds this word: the reset handler writes it. */
#ifdef __ASSEMBLER__
#define UTVM_STACK_PAINT 0xA5A5A5A5
#else
#define UTVM_STACK_PAINT 0xA5A5A5A5u
#endif

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stdint.h>

/** A register of a peripheral. */
#define UTVM_REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

/** Initialise variables. The reset handler calls it before any other C code uses memory. */
void utvm_memory_start(void);

/** Store the stack, from this address on, with utvm_fault. */
void utvm_fault_keep_stack(uintptr_t from);

/** utvm_fault is complete: report it, and stop. */
void utvm_fault_complete(void);

/** Defined by the architecture: enable the interrupts of a line. */
void utvm_interrupts_from(uint32_t line);

/** Enable the interrupts of all lines of the console. */
void utvm_console_lines_on(void);

/** If there are caches: write memory back and invalidate it, before a device other than the core uses it. */
void utvm_cache_hand_over(const void *data, uint32_t bytes);

/** If there are caches: invalidate memory that a device other than the core has written. */
void utvm_cache_forget(const void *data, uint32_t bytes);

/** Defined by the board's port: start the accelerator, unless it is started; false if there is none. */
bool utvm_port_start_accelerator(void);

#endif /* __ASSEMBLER__ */
#endif
