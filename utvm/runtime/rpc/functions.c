/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in functions, operators of models and functions that take tensors: their names, handles and use counts. */
#include "functions.h"

#include <stddef.h>
#include <string.h>

#include "modules.h"
#include "operators.h"
#include "utvm.h"

#define LIBRARY_HANDLE 0x20000u

static const utvm_builtin_t *listed;
static uint32_t *builtin_uses;
static uint32_t builtin_count;
static uint32_t library_uses;

void utvm_functions_list(const utvm_builtin_t *list, uint32_t *uses, uint32_t count) {
  listed = list;
  builtin_uses = uses;
  builtin_count = count;
}

/* Index of the first function that takes tensors: after the operators. */
static uint32_t first_tensor_function(void) {
  return builtin_count + utvm_operator_count;
}

static const char *name_of(uint32_t index) {
  const char *name;
  if (index < builtin_count) {
    name = listed[index].name;
  } else if (index < first_tensor_function()) {
    name = utvm_operators[index - builtin_count].name;
  } else {
    name = utvm_tensor_functions[index - first_tensor_function()].name;
  }
  return name;
}

/* The use count of a handle; NULL if it is not one of these. */
static uint32_t *uses_of(uint64_t handle) {
  uint32_t *uses = NULL;
  if (handle == LIBRARY_HANDLE) {
    uses = &library_uses;
  } else if ((handle >= 1u) && (handle <= builtin_count)) {
    uses = &builtin_uses[handle - 1u];
  } else if ((handle > builtin_count) && ((handle - builtin_count) <= utvm_operator_count)) {
    uses = &utvm_operator_uses[handle - builtin_count - 1u];
  } else if ((handle > first_tensor_function()) &&
             ((handle - first_tensor_function()) <= utvm_tensor_function_count)) {
    uses = &utvm_tensor_function_uses[handle - first_tensor_function() - 1u];
  } else {
    /* Not one of these handles. */
  }
  return uses;
}

void utvm_functions_reset(void) {
  (void)memset(builtin_uses, 0, builtin_count * sizeof builtin_uses[0]);
  library_uses = 0u;
  for (uint32_t index = 0u; index < utvm_operator_count; index++) {
    utvm_operator_uses[index] = 0u;
  }
  for (uint32_t index = 0u; index < utvm_tensor_function_count; index++) {
    utvm_tensor_function_uses[index] = 0u;
  }
}

uint64_t utvm_function_find(const uint8_t *name, uint32_t length) {
  uint64_t handle = 0u;
  const uint32_t count = first_tensor_function() + utvm_tensor_function_count;
  for (uint32_t index = 0u; (handle == 0u) && (index < count); index++) {
    if (utvm_text_is(name_of(index), name, length)) {
      handle = (uint64_t)index + 1u;
      (*uses_of(handle))++;
    }
  }
  return handle;
}

bool utvm_function_free(uint64_t handle) {
  uint32_t *uses = uses_of(handle);
  const bool good = (uses != NULL) && (*uses > 0u);
  if (good) {
    (*uses)--;
  }
  return good;
}

bool utvm_function_call(uint64_t handle, const utvm_call_t *call) {
  const uint32_t *uses = uses_of(handle);
  bool good;
  if ((uses == NULL) || (*uses == 0u) || (handle == LIBRARY_HANDLE)) {
    good =
        utvm_refuse(call, "the function to be called is not in use: its handle has been freed, or never was one");
  } else if (handle <= builtin_count) {
    good = listed[handle - 1u].run(call);
  } else if (handle <= first_tensor_function()) {
    good = utvm_run_operator(&utvm_operators[handle - builtin_count - 1u], call);
  } else {
    const utvm_tensor_function_t *function = &utvm_tensor_functions[handle - first_tensor_function() - 1u];
    good = function->call(function, call);
  }
  return good;
}

bool utvm_tell_library(const utvm_call_t *call) {
  library_uses++;
  utvm_write_result(call->reply, UTVM_TYPE_MODULE, LIBRARY_HANDLE);
  return true;
}

bool utvm_get_from_library(const utvm_call_t *call) {
  bool good = (call->count >= 2u) && (call->values[1].bytes != NULL);
  if (good) {
    const uint64_t handle = utvm_function_find(call->values[1].bytes, call->values[1].length);
    utvm_write_result(call->reply, (handle != 0u) ? UTVM_TYPE_FUNCTION : UTVM_TYPE_NONE, handle);
  }
  return good || utvm_refuse(call, "a function of the library is asked for by its name");
}
