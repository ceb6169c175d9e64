/* SPDX-License-Identifier: Apache-2.0 */
/* Opcodes: ARM DDI 0403E, section A5. */
#include "opcodes.h"

static uint8_t decode_16(uint16_t op) {
  if (op == 0xBF20u || op == 0xBF30u)
    return SLEEP; /* WFE, WFI */
  if (op == 0xE7FEu)
    return SPIN;
  if (op == 0xBF40u)
    return SEND_EVENT;
  if ((op & 0xFF00u) == 0xBF00u && (op & 0xFu))
    return (uint8_t)(IT_BLOCK | (op & 0xFu));
  if ((op & 0xFFE8u) == 0xB660u)
    return MASKS;                                    /* CPS */
  if ((op & 0xF000u) == 0xC000u)
    return (uint8_t)(WORD_ALIGNED | (op >> 8 & 7u)); /* LDM, STM */
  return PLAIN;
}

static uint8_t decode_32(uint16_t first, uint16_t second) {
  const uint8_t base = first & 0xFu;
  if ((first & 0xFFE0u) == 0xF380u && (second & 0xD000u) == 0x8000u)               /* MSR */
    return (second & 0xFEu) == 0x0Au ? (uint8_t)(SET_LIMIT | base) : MASKS;
  if (first == 0xF3EFu && (second & 0xF0FFu) == 0x8014u)
    return READ_CONTROL;      /* MRS */
  if ((first & 0xFFD0u) == 0xFB90u)
    return (uint8_t)(DIVIDE | (second & 0xFu));    /* SDIV, UDIV */
  if ((first & 0xEC00u) == 0xEC00u && (second & 0x0E00u) == 0x0A00u) {             /* coprocessors 10 and 11 */
    const int between_registers = (first & 0xFFE0u) == 0xEC40u;
    return (first & 0xFE00u) == 0xEC00u && !between_registers && base < 13 ? (uint8_t)(FLOAT_MEMORY | base)
                                                                           : FLOAT;
  }
  if ((first & 0xFE80u) == 0xF800u && (second & 0x0F00u) == 0x0E00u && base != 15)
    return UNPRIVILEGED;
  if ((first & 0xFFE0u) == 0xE840u || ((first & 0xFFE0u) == 0xE8C0u && (second & 0xE0u) == 0x40u))
    return (uint8_t)(EXCLUSIVE | base);
  if (base >= 13)
    return PLAIN; /* SP and PC are always aligned */
  if ((first & 0xFE40u) == 0xE800u)
    return (uint8_t)(WORD_ALIGNED | base); /* LDM, STM */
  /* Exclusives of a byte or a halfword, and table branches. */
  if ((first & 0xFFE0u) == 0xE8C0u)
    return (second & 0xF0u) == 0x50u ? (uint8_t)(HALF_ALIGNED | base) : PLAIN;
  if ((first & 0xFE40u) == 0xE840u)
    return (uint8_t)(WORD_ALIGNED | base); /* LDRD, STRD, LDREX, STREX */
  return PLAIN;
}

uint8_t utvm_kind(uint16_t first, uint16_t second) {
  return first >= 0xE800u ? decode_32(first, second) : decode_16(first);
}
