/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Called before every instruction of an Armv7-A core: counts it, and stops the core where requested.
 *
 * Unicorn skips instructions of an IT block whose condition fails, and cannot be stopped inside a block: the whole
 * block is counted with its IT, and never stopped.
 *
 * Opcodes: ARM DDI 0406C, chapters A5 and A6; alignment: A3.2.1.
 */
#include "counted.h"

enum { REGISTER_CPSR = 3, REGISTER_LR = 10, REGISTER_PC = 11, REGISTER_SP = 12, REGISTER_R0 = 66 }; /* Unicorn's */
enum { THUMB = 1 << 5 };

static uint32_t read_register(void *engine, const core_t *core, int32_t id) {
  uint32_t value = 0;
  core->register_read(engine, id, &value);
  return value;
}

static uint32_t read_r(void *engine, const core_t *core, uint32_t number) {
  static const int32_t high[] = {REGISTER_SP, REGISTER_LR, REGISTER_PC};
  return read_register(engine, core, number < 13 ? REGISTER_R0 + (int32_t)number : high[number - 13]);
}

static int is_triggered(const core_t *core, uint64_t address) {
  for (uint32_t i = 0; i < TRIGGERS; i++) {
    const trigger_t *const trigger = &core->triggers[i];
    if ((trigger->accesses & EXECUTE) && trigger->address == address)
      return 1;
    if ((trigger->accesses & BUT) && trigger->address != address)
      return 1;
  }
  return 0;
}

/* Size in bytes of a number of Thumb instructions. */
static uint32_t span(const core_t *core, uint64_t address, uint32_t instructions) {
  uint32_t bytes = 0;
  while (instructions--)
    bytes += (fetch(core, address + bytes) >> 11 & 0x1Fu) >= 0x1Du ? 4 : 2;
  return bytes;
}

static enum reason examine_thumb(core_t *core, uint32_t op, uint64_t address) {
  op &= 0xFFFFu;
  if ((op & 0xFF00u) == 0xBE00u)
    return BREAK;
  if (op == 0xBF30u)
    return SLEEP;
  if (op == 0xBF20u)
    return PASS; /* WFE: there is no other core to wait for */
  if (core->masks_matter && (op & 0xFFE8u) == 0xB660u)
    core->stop = 1; /* CPS */
  if ((op & 0xFF00u) == 0xBF00u && (op & 0xFu)) {
    uint32_t inside = 4;
    for (uint32_t mask = op & 0xFu; !(mask & 1u); mask >>= 1)
      inside--;
    core->block_end = address + 2 + span(core, address + 2, inside);
    core->count += inside;
  }
  return NONE;
}

/* Loads and stores of several words must be aligned to one: LDRD, STRD, LDM, STM, VLDR, VSTR, VLDM, VSTM. */
static enum reason examine_memory(void *engine, core_t *core, uint32_t op) {
  const uint32_t up = op >> 23 & 1u;
  uint32_t address = read_r(engine, core, op >> 16 & 15u), offset = 0;
  if ((op >> 25 & 7u) == 0) {
    if (op >> 24 & 1u)
      offset = op >> 22 & 1u ? (op >> 4 & 0xF0u) | (op & 15u) : read_r(engine, core, op & 15u);
  } else if ((op & 0x0F200000u) == 0x0D000000u) { /* VLDR, VSTR */
    offset = (op & 0xFFu) << 2;
  }
  address += up ? offset : 0u - offset;
  if (!(address & 3u) || read_register(engine, core, REGISTER_CPSR) & THUMB)
    return NONE;
  core->target = address;
  return UNALIGNED;
}

static enum reason examine_arm(void *engine, core_t *core, uint32_t op) {
  const uint32_t rest = op & 0x0FFFFFFFu;
  enum reason reason = NONE;
  if (op >> 28 == 15) { /* no condition: CPS, RFE */
    if (core->masks_matter && ((op & 0x0FF00000u) == 0x01000000u || (op & 0x0E500000u) == 0x08100000u))
      core->stop = 1;
    return NONE;
  }
  if ((op & 0x0E1000D0u) == 0x000000D0u || (op & 0x0E000000u) == 0x08000000u || (op & 0x0E000E00u) == 0x0C000A00u)
    reason = examine_memory(engine, core, op);
  else if ((op & 0xFFF000F0u) == 0xE1200070u)
    reason = BREAK;
  else if (rest == 0x0320F003u)
    reason = SLEEP;
  else if (rest == 0x0320F002u)
    reason = PASS;
  /* MSR; data processing or LDM that writes PC and restores the status. */
  if (core->masks_matter && ((op & 0x0DB0F000u) == 0x0120F000u || (op & 0x0C10F000u) == 0x0010F000u ||
                             (op & 0x0E508000u) == 0x08508000u))
    core->stop = 1;
  if (reason != NONE && read_register(engine, core, REGISTER_CPSR) & THUMB)
    reason = NONE;
  return reason;
}

void utvm_before_instruction(void *engine, uint64_t address, uint32_t size, void *data) {
  core_t *const core = data;
  enum reason reason = NONE;
  if (address > core->begun && address < core->block_end) {
    core->begun = address;
    return;
  }
  core->block_end = 0;
  if (core->count >= core->deadline || core->stop) {
    reason = REQUEST;
  } else if (core->triggered && is_triggered(core, address)) {
    reason = TRIGGER;
  } else {
    const uint32_t op = fetch(core, address);
    reason = size == 2 ? examine_thumb(core, op, address) : address & 3u ? NONE : examine_arm(engine, core, op);
  }
  if (reason != NONE) {
    stop_for(engine, core, reason);
    return;
  }
  core->count++;
  core->begun = address;
}
