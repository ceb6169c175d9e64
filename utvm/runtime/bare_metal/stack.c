/* SPDX-License-Identifier: Apache-2.0 */
/* The high-water mark of the stack: the reset handler fills it with a pattern, which use overwrites. */
#include "bare_metal.h"
#include "utvm.h"

extern const uint32_t _utvm_stack_start[], _utvm_stack_end[];

uint32_t utvm_stack_used(void) {
  const volatile uint32_t *word = _utvm_stack_start;
  while ((word < _utvm_stack_end) && (*word == UTVM_STACK_PAINT)) {
    word++;
  }
  return (uint32_t)((uintptr_t)_utvm_stack_end - (uintptr_t)word);
}
