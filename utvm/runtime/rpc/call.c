/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "call.h"

#include <stddef.h>

#include "memory.h"

bool utvm_refuse(const utvm_call_t *call, const char *words) {
  utvm_text_add(call->error, words);
  return false;
}

bool utvm_is_number(const utvm_value_t *value) {
  return (value->type == UTVM_TYPE_INTEGER) || (value->type == UTVM_TYPE_BOOL);
}

uint8_t *utvm_tensor_bytes(const utvm_tensor_t *tensor, uint64_t bytes, utvm_text_t *error) {
  uint8_t *address = NULL;
  if (tensor->address <= UINTPTR_MAX) {
    address = (uint8_t *)(uintptr_t)tensor->address;
  }
  if ((bytes > 0u) && (utvm_memory_room(address) < bytes)) {
    utvm_text_add(error, "the tensor is not in the board's memory, or has been freed");
    address = NULL;
  }
  return address;
}
