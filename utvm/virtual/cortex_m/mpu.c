/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights by the regions of a memory protection unit: ARM DDI 0403E, B3.5 (Armv7-M); DDI 0553B, B8 (Armv8-M).
 */
#include "mpu.h"

enum {
  READ_WRITE = RIGHT_READ | RIGHT_WRITE,
  PRIVATE_PERIPHERALS = 0xE00, /* their megabyte always has the default memory map */
};

static uint32_t both(uint32_t privileged, uint32_t unprivileged) {
  return privileged << PRIVILEGED_SHIFT | unprivileged;
}

/* Code must be readable, and not execute-never. */
static uint32_t with_execution(uint32_t rights, uint32_t never) {
  return never ? rights : rights | (rights & both(RIGHT_READ, RIGHT_READ)) * RIGHT_EXECUTE;
}

/* Background region: the default memory map, for privileged code. */
static uint32_t background(const mpu_t *mpu) {
  return mpu->control & MPU_PRIVDEFENA ? both(READ_WRITE | RIGHT_EXECUTE, 0) : 0;
}

/* The region with the highest number applies (table B3-12). */
static uint32_t search_v7(const mpu_t *mpu, uint32_t address) {
  const uint32_t access[8] = {0,
                              both(READ_WRITE, 0),
                              both(READ_WRITE, RIGHT_READ),
                              both(READ_WRITE, READ_WRITE),
                              0,
                              both(RIGHT_READ, 0),
                              both(RIGHT_READ, RIGHT_READ),
                              both(RIGHT_READ, RIGHT_READ)};
  for (uint32_t number = MPU_REGIONS; number-- > 0;) {
    const uint32_t attributes = mpu->regions[number][1];
    const uint32_t bits = (attributes >> 1 & 31u) + 1;
    const uint32_t mask = bits == 32 ? 0 : ~0u << bits;
    if (!(attributes & 1u) || bits < MPU_GRANULE_BITS || ((address ^ mpu->regions[number][0]) & mask))
      continue;
    if (bits >= 8 && attributes >> (8 + (address >> (bits - 3) & 7u)) & 1u)
      continue; /* the subregion is disabled */
    return with_execution(access[attributes >> 24 & 7u], attributes >> 28 & 1u);
  }
  return background(mpu);
}

/* An address in two regions has no rights (B8.2). */
static uint32_t search_v8(const mpu_t *mpu, uint32_t address) {
  const uint32_t access[4] = {both(READ_WRITE, 0), both(READ_WRITE, READ_WRITE), both(RIGHT_READ, 0),
                              both(RIGHT_READ, RIGHT_READ)};
  uint32_t hits = 0, rights = 0;
  for (uint32_t number = 0; number < MPU_REGIONS; number++) {
    const uint32_t base = mpu->regions[number][0], limit = mpu->regions[number][1];
    if ((limit & 1u) && address >= (base & ~31u) && address <= (limit | 31u)) {
      rights = with_execution(access[base >> 1 & 3u], base & 1u);
      hits++;
    }
  }
  return hits == 0 ? background(mpu) : hits == 1 ? rights : 0;
}

static uint32_t rights_at(mpu_t *mpu, uint32_t address) {
  const uint32_t granule = address >> MPU_GRANULE_BITS;
  const uint32_t slot = granule % MPU_KNOWN;
  if (mpu->granules[slot] != granule + 1) {
    mpu->granules[slot] = granule + 1;
    mpu->rights[slot] = (uint8_t)(mpu->v8 ? search_v8(mpu, address) : search_v7(mpu, address));
  }
  return mpu->rights[slot];
}

/* Whether an enabled unit grants the rights for all bytes. */
uint32_t utvm_permits(mpu_t *mpu, uint32_t address, uint32_t size, uint32_t rights) {
  if (address >> 20 == PRIVATE_PERIPHERALS)
    return 1;
  for (uint32_t at = address;; at = (at | 31u) + 1) {
    if ((rights_at(mpu, at) & rights) != rights) {
      mpu->address = at;
      return 0;
    }
    if (address + size - 1 - at <= (at | 31u) - at)
      return 1;
  }
}
