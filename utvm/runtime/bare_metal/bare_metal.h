/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the architectures without an operating system share. Each has a header core.h beside its own files, with what
 * only its own instructions can do.
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

/** Give variables their first values. The reset handler calls it before anything else that is C uses memory. */
void utvm_memory_start(void);

/** Let the stack from an address in it on go with utvm_fault. */
void utvm_fault_keep_stack(uintptr_t from);

/** Nothing is left to write into utvm_fault: tell of it, and stop. */
void utvm_fault_complete(void);

/** The architecture's: let the interrupts of a line in, while the core takes any. */
void utvm_interrupts_from(uint32_t line);

/** Let those of all of the console's lines in. */
void utvm_console_lines_on(void);

/** Where there are caches: write memory back and forget it, before something else than the core works with it. */
void utvm_cache_hand_over(const void *data, uint32_t bytes);

/** Where there are caches: read anew what something else has written since. */
void utvm_cache_forget(const void *data, uint32_t bytes);

/** The board's port: have the accelerator ready to be driven, as often as it is asked; false where there is none. */
bool utvm_port_start_accelerator(void);

#endif /* __ASSEMBLER__ */
#endif
