/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "operators.h"

#include <stddef.h>

bool utvm_run_operator(const utvm_operator_t *operation, const utvm_call_t *call) {
  void *tensors[UTVM_ARGUMENTS];
  bool good = (call->count == operation->count) && (call->count <= (uint32_t)UTVM_ARGUMENTS);
  if (!good) {
    (void)utvm_refuse(call, "the operator takes another number of tensors: ");
    utvm_text_add_number(call->error, (int64_t)operation->count);
  }
  for (uint32_t index = 0u; good && (index < call->count); index++) {
    const utvm_tensor_t *tensor = &call->values[index].tensor;
    good = (call->values[index].type == UTVM_TYPE_TENSOR) && (tensor->bytes == operation->bytes[index]);
    if (!good) {
      (void)utvm_refuse(call, "the operator needs a tensor of ");
      utvm_text_add_number(call->error, (int64_t)operation->bytes[index]);
      utvm_text_add(call->error, " bytes as argument ");
      utvm_text_add_number(call->error, (int64_t)index);
    } else {
      tensors[index] = utvm_tensor_bytes(tensor, tensor->bytes, call->error);
      good = tensors[index] != NULL;
    }
  }
  if (good) {
    utvm_run_begins(utvm_program_count, (uint32_t)(operation - utvm_operators));
    operation->run(tensors);
    utvm_run_ends();
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good;
}
