/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "text.h"

#include <string.h>

#define DIGITS 20u

void utvm_text_clear(utvm_text_t *text) {
  text->length = 0u;
}

void utvm_text_add(utvm_text_t *text, const char *words) {
  for (uint32_t index = 0u; words[index] != '\0'; index++) {
    utvm_text_add_bytes(text, (const uint8_t *)&words[index], 1u);
  }
}

void utvm_text_add_bytes(utvm_text_t *text, const uint8_t *bytes, uint32_t count) {
  const uint32_t room = UTVM_TEXT_BYTES - text->length;
  const uint32_t added = (count < room) ? count : room;
  if (added > 0u) {
    (void)memcpy(&text->bytes[text->length], bytes, added);
    text->length += added;
  }
}

/* Divide by ten and return the remainder. In pieces of 16 bits: a 64-bit division takes 700 bytes of flash. */
static uint32_t divide_by_ten(uint64_t *number) {
  uint64_t quotient = 0u;
  uint32_t rest = 0u;
  for (uint32_t shift = 64u; shift > 0u; shift -= 16u) {
    const uint32_t piece = (rest << 16) | (uint32_t)((*number >> (shift - 16u)) & 0xFFFFu);
    quotient = (quotient << 16) | (piece / 10u);
    rest = piece % 10u;
  }
  *number = quotient;
  return rest;
}

void utvm_text_add_number(utvm_text_t *text, int64_t number) {
  uint8_t digits[DIGITS];
  uint32_t first = DIGITS;
  uint64_t rest = (number < 0) ? (0u - (uint64_t)number) : (uint64_t)number;
  do {
    first--;
    digits[first] = (uint8_t)('0' + (uint8_t)divide_by_ten(&rest));
  } while (rest > 0u);
  if (number < 0) {
    utvm_text_add(text, "-");
  }
  utvm_text_add_bytes(text, &digits[first], DIGITS - first);
}

bool utvm_text_is(const char *name, const uint8_t *bytes, uint32_t count) {
  bool same = true;
  uint32_t index;
  for (index = 0u; same && (index < count); index++) {
    /* The name's terminating zero differs from every letter, so a longer text does not match. */
    same = (name[index] != '\0') && ((uint8_t)name[index] == bytes[index]);
  }
  return same && (name[index] == '\0');
}
