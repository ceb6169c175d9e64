/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights by the regions of a memory protection unit: ARM DDI 0403E, B3.5 (Armv7-M); DDI 0553B, B8 (Armv8-M).
 */
#include "core.h"

#include <stddef.h>
#include <string.h>

enum { TYPE = 0xD90, CTRL = 0xD94, RNR = 0xD98, FIRST = 0xD9C, MAIR0 = 0xDC0, RBAR_VALID = 1 << 4 };

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

/* The first address after one at which rights may differ, or 0. */
static uint32_t next_edge(const mpu_t *mpu, uint32_t address) {
  uint32_t distance = 0u - address;
  for (uint32_t number = 0; number < MPU_REGIONS; number++) {
    const uint32_t base = mpu->regions[number][0], other = mpu->regions[number][1];
    const uint32_t bits = (other >> 1 & 31u) + 1, part = bits >= 8 ? bits - 3 : bits;
    const uint32_t mask = bits == 32 ? 0 : ~0u << bits;
    const uint32_t first = base & (mpu->v8 ? ~31u : mask);
    const int inside = !((address ^ base) & mask);
    const uint32_t edges[2] = {first, mpu->v8 ? (other | 31u) + 1 : inside ? ((address >> part) + 1) << part : first};
    for (uint32_t i = 0; (other & 1u) && i < 2; i++)
      if (edges[i] - address && edges[i] - address - 1 < distance - 1)
        distance = edges[i] - address;
  }
  return address + distance;
}

/*
 * Find whether an enabled unit may refuse an access to memory, and return mpu.used. Without that, its checks of all
 * accesses can be off: those to other addresses are checked where they end.
 */
uint32_t utvm_mpu_filters(core_t *core) {
  mpu_t *const mpu = &core->mpu;
  if (!(mpu->control & MPU_ENABLE))
    return mpu->used;
  if (mpu->used & MPU_UNPRIVILEGED)
    mpu->used |= MPU_FILTERS_DATA | MPU_FILTERS_CODE;
  for (uint32_t i = 0; i < core->memory_count; i++) {
    const uint32_t start = core->memories[i].start, size = core->memories[i].size;
    for (uint32_t at = start, next = 0;; at = next) {
      const uint32_t rights = (mpu->v8 ? search_v8(mpu, at) : search_v7(mpu, at)) >> PRIVILEGED_SHIFT;
      mpu->used |= (rights & READ_WRITE) != READ_WRITE ? MPU_FILTERS_DATA : 0;
      mpu->used |= rights & RIGHT_EXECUTE ? 0 : MPU_FILTERS_CODE;
      next = next_edge(mpu, at);
      if (next <= at || next - start >= size)
        break;
    }
  }
  return mpu->used;
}

void utvm_mpu_reset(mpu_t *mpu) {
  memset(&mpu->control, 0, sizeof *mpu - offsetof(mpu_t, control));
}

/* The register of a region at an offset. Aliases of Armv8-M are the next three regions. */
static uint32_t *region_at(mpu_t *mpu, uint32_t offset) {
  const uint32_t pair = (offset - FIRST) / 8;
  const uint32_t number = pair && mpu->v8 ? (mpu->number & ~3u) | pair : mpu->number;
  return &mpu->regions[number % mpu->count][(offset - FIRST) / 4 % 2];
}

/* Read the register at an offset from 0xE000E000. */
uint32_t utvm_mpu_load(mpu_t *mpu, uint32_t offset) {
  if (offset == TYPE)
    return mpu->count << 8;
  if (offset == CTRL)
    return mpu->control;
  if (offset == RNR)
    return mpu->number;
  if (offset >= MAIR0)
    return mpu->v8 ? mpu->attributes[(offset - MAIR0) / 4 % 2] : 0;
  return *region_at(mpu, offset) | (mpu->v8 || (offset - FIRST) / 4 % 2 ? 0 : mpu->number);
}

void utvm_mpu_store(mpu_t *mpu, uint32_t offset, uint32_t value, uint32_t lanes) {
  if (offset == CTRL) {
    mpu->control = value & (MPU_ENABLE | MPU_HFNMIENA | MPU_PRIVDEFENA);
    mpu->used |= value & MPU_ENABLE ? MPU_ENABLED_ONCE : 0;
  } else if (offset == RNR) {
    mpu->number = value % mpu->count;
  } else if (offset >= MAIR0) {
    mpu->attributes[(offset - MAIR0) / 4 % 2] = value;
  } else if (offset >= FIRST) {
    if (!mpu->v8 && (offset - FIRST) / 4 % 2 == 0) {
      if (value & RBAR_VALID)
        mpu->number = (value & 15u) % mpu->count;
      value &= ~31u;
    }
    *region_at(mpu, offset) = (*region_at(mpu, offset) & ~lanes) | value;
  }
  memset(mpu->granules, 0, sizeof mpu->granules);
  mpu->mode = MODE_UNREAD;
}

static void read_mode(void *engine, core_t *core) {
  uint32_t control = 0, status = 0, mask = 0;
  core->register_read(engine, REGISTER_CONTROL, &control);
  core->register_read(engine, REGISTER_XPSR, &status);
  core->register_read(engine, REGISTER_FAULTMASK, &mask);
  status &= 0x1FFu;
  if ((mask || status == 2 || status == 3) && !(core->mpu.control & MPU_HFNMIENA))
    core->mpu.mode = MODE_UNCHECKED;
  else
    core->mpu.mode = status || !(control & 1u) ? MODE_PRIVILEGED : MODE_UNPRIVILEGED;
}

/* Whether the memory protection unit lets the code that runs have a right. */
uint32_t utvm_allows(void *engine, core_t *core, uint32_t address, uint32_t size, uint32_t right) {
  if (!(core->mpu.control & MPU_ENABLE))
    return 1;
  if (core->mpu.mode == MODE_UNREAD)
    read_mode(engine, core);
  if (core->mpu.mode == MODE_UNCHECKED)
    return 1;
  if (core->mpu.mode == MODE_PRIVILEGED && (right == RIGHT_EXECUTE || core->unprivileged != core->count))
    right <<= PRIVILEGED_SHIFT;
  return utvm_permits(&core->mpu, address, size, right);
}
