/* SPDX-License-Identifier: Apache-2.0 */
/* The part of fault handling that all architectures share. */
#include <string.h>

#include "utvm.h"

volatile utvm_fault_t utvm_fault;

static char words[UTVM_FAULT_WORDS_BYTES];

static uint32_t add_words(uint32_t used, const char *text) {
  uint32_t length = 0u;
  while ((text[length] != '\0') && ((used + length) < (UTVM_FAULT_WORDS_BYTES - 1u))) {
    words[used + length] = text[length];
    length++;
  }
  return used + length;
}

void utvm_fault_begin(void) {
  uint32_t index;
  (void)memset((void *)(uintptr_t)&utvm_fault, 0, sizeof utvm_fault);
  utvm_fault.program = utvm_running.program;
  utvm_fault.step = utvm_running.step;
  for (index = 0u; index < UTVM_FAULT_WORDS_BYTES; index++) {
    utvm_fault.words[index] = words[index];
  }
}

void utvm_assertion_failed(const char *file, int line, const char *expression) {
  static const char decimal[] = "0123456789";
  char digits[12];
  uint32_t first = (uint32_t)sizeof digits - 1u;
  uint32_t rest = (line > 0) ? (uint32_t)line : 0u;
  uint32_t used;
  digits[first] = '\0';
  do {
    first--;
    digits[first] = decimal[rest % 10u];
    rest /= 10u;
  } while (rest > 0u);
  used = add_words(0u, file);
  used = add_words(used, ":");
  used = add_words(used, &digits[first]);
  used = add_words(used, ": ");
  (void)add_words(used, expression);
  /* An undefined instruction: the fault handler gets the registers and the stack of this function. */
  __builtin_trap();
}
