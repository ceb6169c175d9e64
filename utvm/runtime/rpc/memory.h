/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory for the host's tensors: blocks of a piece of memory given by the caller.
 *
 * Queries about an address use the list of blocks and never read memory at that address, so they accept any
 * address.
 */
#ifndef UTVM_MEMORY_H
#define UTVM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/** Blocks are aligned to this many bytes: a power of two. The build of a process sets more, for vectors. */
#ifndef UTVM_MEMORY_ALIGNMENT
#define UTVM_MEMORY_ALIGNMENT 16u
#endif

/** Take over a piece of memory; everything in it is free. */
void utvm_memory_init(uint8_t *start, uint32_t bytes);

/** Allocate a block; returns NULL if no free piece is large enough. */
uint8_t *utvm_memory_take(uint32_t bytes);

/** Free a block; returns false if the address is not that of a block in use. */
bool utvm_memory_give(const uint8_t *block);

/** Bytes from an address to the end of its block in use; 0 if it is not in one. */
uint32_t utvm_memory_room(const uint8_t *address);

/** Bytes in use now, and the maximum since the start, including the list itself. */
uint32_t utvm_memory_used(void);
uint32_t utvm_memory_used_at_most(void);

/** Bytes of the largest block that can be allocated now. */
uint32_t utvm_memory_largest(void);

#endif
