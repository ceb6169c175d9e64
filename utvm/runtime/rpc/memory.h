/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory for the host's tensors: blocks from one piece of memory, which the caller brings.
 *
 * What is asked about an address is answered from the list of blocks, never from memory at that address, so any
 * address may be asked about.
 */
#ifndef UTVM_MEMORY_H
#define UTVM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/** Blocks are aligned to this many bytes: a power of two. A process has vectors, for which the build says more. */
#ifndef UTVM_MEMORY_ALIGNMENT
#define UTVM_MEMORY_ALIGNMENT 16u
#endif

/** Take over a piece of memory; everything in it is free. */
void utvm_memory_init(uint8_t *start, uint32_t bytes);

/** Take a block; returns NULL where no free piece is large enough. */
uint8_t *utvm_memory_take(uint32_t bytes);

/** Give a block back; returns false where the address is not that of a block in use. */
bool utvm_memory_give(const uint8_t *block);

/** Bytes from an address to the end of the block in use that it lies in; 0 where it lies in none. */
uint32_t utvm_memory_room(const uint8_t *address);

/** Bytes in use now, and at most since the memory was taken over; what the list itself needs is counted. */
uint32_t utvm_memory_used(void);
uint32_t utvm_memory_used_at_most(void);

/** Bytes of the largest block that can be had now. */
uint32_t utvm_memory_largest(void);

#endif
