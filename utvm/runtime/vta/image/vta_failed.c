/* SPDX-License-Identifier: Apache-2.0 */
/* In an image, a fault of the accelerator stops the program like a failed assertion, and is reported like one. */
#include "utvm.h"
#include "vta.h"

#define INSTRUCTION_LETTERS 22u /* of six bits each */
#define NUMBER_LETTERS 20u
#define MOST (INSTRUCTION_LETTERS + (2u * (NUMBER_LETTERS + 1u)) + 64u)

static char words[MOST];
static uint32_t used;

static void add(char letter) {
  if (used < (MOST - 1u)) {
    words[used] = letter;
    used++;
  }
}

static void add_number(int64_t number) {
  char digits[NUMBER_LETTERS];
  uint32_t count = 0;
  uint64_t rest = number < 0 ? 0u - (uint64_t)number : (uint64_t)number;
  add(' ');
  if (number < 0) {
    add('-');
  }
  do {
    digits[count] = (char)('0' + (char)(rest % 10u));
    count++;
    rest /= 10u;
  } while (rest > 0u);
  while (count > 0u) {
    count--;
    add(digits[count]);
  }
}

/* Encoded in about a hundred letters, which utvm/runtime/vta/instructions.py decodes. */
void vta_failed(const vta_fault *fault) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  used = 0;
  for (uint32_t i = 0; i < INSTRUCTION_LETTERS; i++) {
    const uint32_t low = 6u * i, word = low >> 6, at = low & 63u;
    uint64_t bits = fault->instruction.words[word] >> at;
    if (at > 58u && word == 0u) {
      bits |= fault->instruction.words[1] << (64u - at);
    }
    add(letters[bits & 63u]);
  }
  add_number(fault->value);
  add_number(fault->limit);
  add(' ');
  for (const char *letter = fault->rule; *letter != '\0'; letter++) {
    add(*letter);
  }
  words[used] = '\0';
  utvm_assertion_failed("vta", fault->number + 1, words);
}
