/* SPDX-License-Identifier: Apache-2.0 */
/* A first-fit allocator: contiguous blocks fill the memory, and each begins with a head. */
#include "memory.h"

#include <stddef.h>

typedef struct {
  uint32_t bytes; /* of the block, including the head */
  uint32_t used;  /* 1 or 0 */
  uint32_t unused[2];
} head_t;

#define HEAD_BYTES UTVM_MEMORY_ALIGNMENT /* at least the size of a head; keeps the block aligned */

static uint8_t *memory;
static uint32_t memory_bytes;
static uint32_t used_at_most;

static head_t *head_at(uint32_t offset) {
  return (head_t *)(void *)&memory[offset];
}

void utvm_memory_init(uint8_t *start, uint32_t bytes) {
  const uint32_t skipped =
      (UTVM_MEMORY_ALIGNMENT - (uint32_t)((uintptr_t)start % UTVM_MEMORY_ALIGNMENT)) % UTVM_MEMORY_ALIGNMENT;
  memory = &start[skipped];
  memory_bytes = 0u;
  used_at_most = 0u;
  if (bytes >= (skipped + HEAD_BYTES)) {
    memory_bytes = (bytes - skipped) & ~(UTVM_MEMORY_ALIGNMENT - 1u);
    head_at(0u)->bytes = memory_bytes;
    head_at(0u)->used = 0u;
  }
}

/* Merge a free block with the free blocks after it. */
static void join(head_t *head, uint32_t offset) {
  uint32_t next = offset + head->bytes;
  while ((next < memory_bytes) && (head_at(next)->used == 0u)) {
    head->bytes += head_at(next)->bytes;
    next = offset + head->bytes;
  }
}

uint8_t *utvm_memory_take(uint32_t bytes) {
  uint8_t *taken = NULL;
  uint32_t offset = 0u;
  uint32_t need = 0u;
  if (bytes <= memory_bytes) {
    need = ((bytes + UTVM_MEMORY_ALIGNMENT - 1u) & ~(UTVM_MEMORY_ALIGNMENT - 1u)) + HEAD_BYTES;
  }
  while ((need > 0u) && (taken == NULL) && (offset < memory_bytes)) {
    head_t *head = head_at(offset);
    if (head->used == 0u) {
      join(head, offset);
      if (head->bytes >= need) {
        if (head->bytes > need) {
          head_at(offset + need)->bytes = head->bytes - need;
          head_at(offset + need)->used = 0u;
          head->bytes = need;
        }
        head->used = 1u;
        taken = &memory[offset + HEAD_BYTES];
      }
    }
    offset += head->bytes;
  }
  if ((taken != NULL) && (utvm_memory_used() > used_at_most)) {
    used_at_most = utvm_memory_used();
  }
  return taken;
}

bool utvm_memory_give(const uint8_t *block) {
  bool given = false;
  uint32_t offset = 0u;
  while ((!given) && (offset < memory_bytes)) {
    head_t *head = head_at(offset);
    if ((head->used == 1u) && (block == &memory[offset + HEAD_BYTES])) {
      head->used = 0u;
      given = true;
    }
    offset += head->bytes;
  }
  return given;
}

uint32_t utvm_memory_room(const uint8_t *address) {
  /* Compare as integers: the address may point anywhere. */
  const uintptr_t wanted = (uintptr_t)address;
  const uintptr_t start = (uintptr_t)memory;
  uint32_t room = 0u;
  uint32_t offset = 0u;
  while ((wanted >= start) && ((wanted - start) < memory_bytes) && (offset < memory_bytes)) {
    const head_t *head = head_at(offset);
    const uint32_t place = (uint32_t)(wanted - start);
    if ((head->used == 1u) && (place >= (offset + HEAD_BYTES)) && (place < (offset + head->bytes))) {
      room = (offset + head->bytes) - place;
    }
    offset += head->bytes;
  }
  return room;
}

uint32_t utvm_memory_used(void) {
  uint32_t used = 0u;
  for (uint32_t offset = 0u; offset < memory_bytes; offset += head_at(offset)->bytes) {
    if (head_at(offset)->used == 1u) {
      used += head_at(offset)->bytes;
    }
  }
  return used;
}

uint32_t utvm_memory_used_at_most(void) {
  return used_at_most;
}

uint32_t utvm_memory_largest(void) {
  uint32_t largest = 0u;
  for (uint32_t offset = 0u; offset < memory_bytes; offset += head_at(offset)->bytes) {
    head_t *head = head_at(offset);
    if (head->used == 0u) {
      join(head, offset);
      if ((head->bytes - HEAD_BYTES) > largest) {
        largest = head->bytes - HEAD_BYTES;
      }
    }
  }
  return largest;
}
