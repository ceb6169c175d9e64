/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data cache of level 1, by address (ARM DDI 0406C, B4.2.1), and that of level 2, a PL310, if the boot
 * image has left it on (ARM DDI 0246H, 3.3). Lines of both have 32 bytes.
 */
#include "cortex_a.h"

#define LINE 32u
#define LEVEL_2 0x2000u
#define LEVEL_2_CONTROL 0x100u
#define LEVEL_2_ON 1u
#define LEVEL_2_SYNC 0x730u
#define LEVEL_2_INVALIDATE 0x770u
#define LEVEL_2_CLEAN_AND_INVALIDATE 0x7F0u

static void level_2(uint32_t begin, uint32_t end, uint32_t operation) {
  const uintptr_t base = utvm_private_base() + LEVEL_2;
  uint32_t line;
  if ((UTVM_REGISTER(base + LEVEL_2_CONTROL) & LEVEL_2_ON) != 0u) {
    for (line = begin; line < end; line += LINE) {
      UTVM_REGISTER(base + operation) = line;
    }
    UTVM_REGISTER(base + LEVEL_2_SYNC) = 0u;
  }
}

void utvm_cache_hand_over(const void *data, uint32_t bytes) {
  const uint32_t begin = (uint32_t)data & ~(LINE - 1u);
  const uint32_t end = (uint32_t)data + bytes;
  uint32_t line;
  for (line = begin; line < end; line += LINE) {
    __asm__ volatile("mcr p15, 0, %0, c7, c14, 1" ::"r"(line) : "memory"); /* DCCIMVAC */
  }
  __asm__ volatile("dsb" ::: "memory");
  level_2(begin, end, LEVEL_2_CLEAN_AND_INVALIDATE);
  __asm__ volatile("dsb" ::: "memory");
}

/* Level 2 first: level 1 is refilled from there. */
void utvm_cache_forget(const void *data, uint32_t bytes) {
  const uint32_t begin = (uint32_t)data & ~(LINE - 1u);
  const uint32_t end = (uint32_t)data + bytes;
  uint32_t line;
  level_2(begin, end, LEVEL_2_INVALIDATE);
  for (line = begin; line < end; line += LINE) {
    __asm__ volatile("mcr p15, 0, %0, c7, c6, 1" ::"r"(line) : "memory"); /* DCIMVAC */
  }
  __asm__ volatile("dsb" ::: "memory");
}
