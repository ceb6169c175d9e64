/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of instructions that need care before they run. */
#ifndef UTVM_OPCODES_H
#define UTVM_OPCODES_H

#include <stdint.h>

/* High nibble: the kind of an instruction; low nibble: its register. */
enum kind {
  UNTOUCHED = 0x00, /* never translated */
  UNKNOWN = 0x01,   /* translated, not decoded yet */
  PLAIN = 0x02,
  FLOAT = 0x03, /* plain while the floating-point unit is on */
  SLEEP = 0x20,
  SPIN = 0xD0, /* a branch to itself */
  SEND_EVENT = 0xA0,
  READ_CONTROL = 0xB0,
  SET_LIMIT = 0xC0, /* of a stack */
  IT_BLOCK = 0x30,
  MASKS = 0x40,
  DIVIDE = 0x50,
  FLOAT_MEMORY = 0x70,
  WORD_ALIGNED = 0x80,
  HALF_ALIGNED = 0x90,
  EXCLUSIVE = 0x60,    /* LDREX, STREX and those of a byte or a halfword */
  UNPRIVILEGED = 0xE0, /* LDRT, STRT */
};

/* The kind of an opcode; `second` matters for 32 bits only. */
uint8_t utvm_kind(uint16_t first, uint16_t second);

#endif
