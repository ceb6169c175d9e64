/* See the header. */
#include "text.h"

#include <string.h>

#define DIGITS 20u

void utvm_text_clear(utvm_text_t *text) {
  text->length = 0u;
}

void utvm_text_add(utvm_text_t *text, const char *words) {
  utvm_text_add_bytes(text, (const uint8_t *)words, (uint32_t)strlen(words));
}

void utvm_text_add_bytes(utvm_text_t *text, const uint8_t *bytes, uint32_t count) {
  const uint32_t room = UTVM_TEXT_BYTES - text->length;
  const uint32_t added = (count < room) ? count : room;
  if (added > 0u) {
    (void)memcpy(&text->bytes[text->length], bytes, added);
    text->length += added;
  }
}

void utvm_text_add_number(utvm_text_t *text, int64_t number) {
  uint8_t digits[DIGITS];
  uint32_t first = DIGITS;
  uint64_t rest = (number < 0) ? (0u - (uint64_t)number) : (uint64_t)number;
  do {
    first--;
    digits[first] = (uint8_t)('0' + (uint8_t)(rest % 10u));
    rest /= 10u;
  } while (rest > 0u);
  if (number < 0) {
    utvm_text_add(text, "-");
  }
  utvm_text_add_bytes(text, &digits[first], DIGITS - first);
}

bool utvm_text_is(const char *name, const uint8_t *bytes, uint32_t count) {
  bool same = strlen(name) == count;
  for (uint32_t index = 0u; same && (index < count); index++) {
    same = (uint8_t)name[index] == bytes[index];
  }
  return same;
}
