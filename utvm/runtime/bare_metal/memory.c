/* SPDX-License-Identifier: Apache-2.0 */
/* Initialises variables, before other C code runs. */
#include <string.h>

#include "bare_metal.h"

extern uint8_t _utvm_data_load[], _utvm_data_start[], _utvm_data_end[];
extern uint8_t _utvm_bss_start[], _utvm_bss_end[];

static uint32_t bytes_between(const uint8_t *start, const uint8_t *end) {
  return (uint32_t)((uintptr_t)end - (uintptr_t)start);
}

void utvm_memory_start(void) {
  (void)memcpy(_utvm_data_start, _utvm_data_load, bytes_between(_utvm_data_start, _utvm_data_end));
  (void)memset(_utvm_bss_start, 0, bytes_between(_utvm_bss_start, _utvm_bss_end));
}
