/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Called before every instruction of a RISC-V hart: counts it, and stops the hart where requested. All instructions
 * that need more than Unicorn have one opcode (SYSTEM) or are C.EBREAK, so they are decoded from memory.
 *
 * Numbers and encodings: RISC-V Instruction Set Manual, Volume I, 20191213, chapters 16 and 24; Volume II, 20211203,
 * chapter 2.
 */
#include "counted.h"

enum { REGISTER_X0 = 1 }; /* UC_RISCV_REG_X0 */

typedef struct {
  uint64_t address;
  uint32_t size, accesses;
} access_t;

static uint64_t read_x(void *engine, const core_t *hart, uint32_t number) {
  uint64_t value = 0;
  if (number)
    hart->register_read(engine, REGISTER_X0 + (int32_t)number, &value);
  return hart->width == 32 ? (uint32_t)value : value;
}

static uint32_t bits(uint32_t op, uint32_t high, uint32_t low) {
  return op >> low & ((1u << (high - low + 1)) - 1u);
}

/* Quadrants 0 and 2 of the compressed instructions: base register and offset of a load or store. */
static int decode_compressed(const core_t *hart, uint32_t op, uint32_t *base, uint32_t *offset, access_t *access) {
  const uint32_t funct3 = bits(op, 15, 13), kind = funct3 & 3u, quadrant = op & 3u;
  /* 1: floating double; 2: word; 3: floating word of 32 bits, doubleword of 64. */
  const int eight = kind == 1 || (kind == 3 && hart->width == 64);
  if (!kind || (quadrant & 1u))
    return 0;
  access->size = eight ? 8 : 4;
  access->accesses = funct3 & 4u ? STORE : LOAD;
  if (quadrant == 0) {
    *base = 8 + bits(op, 9, 7);
    *offset = bits(op, 12, 10) << 3;
    *offset |= eight ? bits(op, 6, 5) << 6 : bits(op, 6, 6) << 2 | bits(op, 5, 5) << 6;
  } else {
    *base = 2;
    if (funct3 & 4u) {
      *offset = eight ? bits(op, 12, 10) << 3 | bits(op, 9, 7) << 6 : bits(op, 12, 9) << 2 | bits(op, 8, 7) << 6;
    } else {
      *offset = bits(op, 12, 12) << 5;
      *offset |= eight ? bits(op, 6, 5) << 3 | bits(op, 4, 2) << 6 : bits(op, 6, 4) << 2 | bits(op, 3, 2) << 6;
    }
  }
  return 1;
}

/* The memory access of an instruction; accesses is 0 if there is none. */
static access_t decode(void *engine, const core_t *hart, uint32_t op) {
  access_t access = {0, 0, 0};
  uint32_t base = bits(op, 19, 15), offset = 0;
  if ((op & 3u) != 3u) {
    if (!decode_compressed(hart, op, &base, &offset, &access))
      return access;
  } else {
    access.size = 1u << (bits(op, 14, 12) & 3u);
    switch (op & 0x7Fu) {
    case 0x03: /* LOAD */
    case 0x07: /* LOAD-FP */
      access.accesses = LOAD;
      offset = bits(op, 31, 20) | (op >> 31 ? 0xFFFFF000u : 0u);
      break;
    case 0x23: /* STORE */
    case 0x27: /* STORE-FP */
      access.accesses = STORE;
      offset = bits(op, 31, 25) << 5 | bits(op, 11, 7) | (op >> 31 ? 0xFFFFF000u : 0u);
      break;
    case 0x2F: /* AMO; LR loads only, SC may store */
      access.accesses = bits(op, 31, 27) == 2 ? LOAD : bits(op, 31, 27) == 3 ? STORE : LOAD | STORE;
      break;
    default:
      return access;
    }
  }
  access.address = read_x(engine, hart, base) + (uint64_t)(int64_t)(int32_t)offset;
  if (hart->width == 32)
    access.address = (uint32_t)access.address;
  return access;
}

/* The data address of the last instruction; its registers must still have their values from before it. */
uint64_t utvm_data_address(void *engine, core_t *hart) {
  return decode(engine, hart, fetch(hart, hart->begun)).address;
}

static int is_triggered(void *engine, core_t *hart, uint64_t address, uint32_t op) {
  access_t access = {0, 0, 0};
  if (hart->triggered & (LOAD | STORE))
    access = decode(engine, hart, op);
  for (uint32_t i = 0; i < TRIGGERS; i++) {
    const trigger_t *const trigger = &hart->triggers[i];
    if (((trigger->accesses & EXECUTE) && trigger->address == address) ||
        ((trigger->accesses & access.accesses) && trigger->address == access.address)) {
      hart->fired = i;
      return 1;
    }
  }
  return 0;
}

static enum reason examine(core_t *hart, uint32_t op) {
  const uint32_t csr = op >> 20, half = csr & 0xF7Fu;
  if ((op & 0xFFFFu) == 0x9002u || op == 0x00100073u)
    return BREAK;
  if (op == 0x00000073u)
    return ECALL;
  if (op == 0x10500073u)
    return SLEEP;
  if (bits(op, 14, 12) == 0) {
    if (hart->masks_matter)
      hart->stop = 1; /* MRET */
    return NONE;
  }
  /* cycle, time, instret, mcycle, minstret and their upper halves. A write to a read-only one faults. */
  if ((half >= 0xC00u && half <= 0xC02u) || half == 0xB00u || half == 0xB02u)
    return (csr >> 10) == 3 && (bits(op, 13, 12) == 1 || bits(op, 19, 15)) ? NONE : READ_COUNTER;
  if (csr == 0x344u)
    return READ_COUNTER; /* mip, whose bits are the devices' */
  /* mstatus, mie: an interrupt may be unmasked. */
  if (hart->masks_matter && (csr == 0x300u || csr == 0x304u))
    hart->stop = 1;
  return NONE;
}

void utvm_before_instruction(void *engine, uint64_t address, uint32_t size, void *data) {
  core_t *const hart = data;
  enum reason reason = NONE;
  (void)size;
  if (hart->count >= hart->deadline || hart->stop) {
    reason = REQUEST;
  } else {
    const uint32_t op = fetch(hart, address);
    if (hart->triggered && is_triggered(engine, hart, address, op)) {
      reason = TRIGGER;
    } else if ((op & 0x7Fu) == 0x73u || (op & 0xFFFFu) == 0x9002u) {
      reason = examine(hart, op);
    }
  }
  if (reason != NONE) {
    stop_for(engine, hart, reason);
    return;
  }
  hart->count++;
  hart->begun = address;
}
