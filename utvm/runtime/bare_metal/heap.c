/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of the memory region for data, from the linker script. */
#include "utvm.h"

extern uint8_t _utvm_heap_start[], _utvm_heap_end[];

uint8_t *const utvm_heap_start = _utvm_heap_start;
uint8_t *const utvm_heap_end = _utvm_heap_end;
