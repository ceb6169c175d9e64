/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to functions of TVM's compiler, and the runtime functions that these call. */
#include "modules.h"

#include <stddef.h>
#include <string.h>

#include "memory.h"
#include "utvm.h"

#define CPU 1 /* kDLCPU of dlpack.h */

static utvm_text_t *raised; /* takes the error message of the running function */

static bool pass(const utvm_value_t *value, utvm_any_t *argument, utvm_dl_tensor_t *passed, utvm_text_t *error) {
  bool good = true;
  (void)memset(argument, 0, sizeof *argument);
  argument->type = value->type;
  if (value->type == UTVM_TYPE_TENSOR) {
    const utvm_tensor_t *tensor = &value->tensor;
    passed->data = utvm_tensor_bytes(tensor, tensor->bytes, error);
    passed->device_type = CPU;
    passed->device = 0;
    passed->dimensions = tensor->dimensions;
    passed->code = tensor->code;
    passed->bits = tensor->bits;
    passed->lanes = tensor->lanes;
    passed->shape = tensor->shape;
    passed->strides = NULL;
    passed->byte_offset = 0u;
    argument->number = (uint64_t)(uintptr_t)passed;
    good = (passed->data != NULL) || (tensor->bytes == 0u);
  } else if ((value->type == UTVM_TYPE_INTEGER) || (value->type == UTVM_TYPE_BOOL) ||
             (value->type == UTVM_TYPE_FLOAT)) {
    argument->number = value->number;
  } else if (value->type != UTVM_TYPE_NONE) {
    utvm_text_add(error, "a function of a module takes tensors and numbers");
    good = false;
  } else {
    /* None is passed as None. */
  }
  return good;
}

bool utvm_call_compiled(const utvm_tensor_function_t *function, const utvm_call_t *call) {
  static utvm_any_t arguments[UTVM_ARGUMENTS];
  static utvm_dl_tensor_t tensors[UTVM_ARGUMENTS];
  utvm_any_t result;
  bool good = true;
  (void)memset(&result, 0, sizeof result);
  for (uint32_t index = 0u; good && (index < call->count); index++) {
    good = pass(&call->values[index], &arguments[index], &tensors[index], call->error);
  }
  if (good) {
    raised = call->error;
    utvm_run_begins(utvm_program_count, utvm_operator_count + (uint32_t)(function - utvm_tensor_functions));
    const int32_t status = function->compiled(NULL, arguments, (int32_t)call->count, &result);
    utvm_run_ends();
    good = status == 0;
    if ((!good) && (call->error->length == 0u)) {
      (void)utvm_refuse(call, function->name);
      utvm_text_add(call->error, " returned error code ");
      utvm_text_add_number(call->error, status);
    }
  }
  if (good) {
    if ((result.type >= UTVM_TYPE_NONE) && (result.type <= UTVM_TYPE_FLOAT)) {
      utvm_write_result(call->reply, result.type, result.number);
    } else {
      good = utvm_refuse(call, "the function returned neither a number nor nothing");
    }
  }
  return good;
}

/*
 * Runtime functions for compiled code, with the names and parameters of tvm/ffi/c_api.h and tvm/runtime/c_backend_api.h.
 * Images have no others; linking fails with the name of a missing one.
 */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
void *TVMBackendAllocWorkspace(int device_type, int device, uint64_t bytes, int code, int bits);
int TVMBackendFreeWorkspace(int device_type, int device, void *block);

/** A group of tasks: TVMParallelGroupEnv. */
typedef struct {
  void *handle;
  int32_t tasks;
} group_t;

typedef int (*task_t)(int task, group_t *group, void *data);
typedef int (*task_launcher_t)(task_t task, void *data, int tasks);
typedef int (*task_barrier_t)(int task, group_t *group);
typedef void (*raise_t)(const char *kind, const char *message);

int TVMBackendParallelLaunch(task_t task, void *data, int tasks);
int TVMBackendParallelBarrier(int task, group_t *group);

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  utvm_text_add(raised, kind);
  utvm_text_add(raised, ": ");
  for (int32_t index = 0; index < count; index++) {
    utvm_text_add(raised, (parts[index] != NULL) ? parts[index] : "");
  }
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}

void *TVMBackendAllocWorkspace(int device_type, int device, uint64_t bytes, int code, int bits) {
  void *block = (bytes <= UINT32_MAX) ? utvm_memory_take((uint32_t)bytes) : NULL;
  (void)device_type;
  (void)device;
  (void)code;
  (void)bits;
  if (block == NULL) {
    utvm_text_add(raised, "the board has no room for a workspace of ");
    utvm_text_add_number(raised, (int64_t)bytes);
    utvm_text_add(raised, " bytes: the largest that it can take now has ");
    utvm_text_add_number(raised, (int64_t)utvm_memory_largest());
  }
  return block;
}

int TVMBackendFreeWorkspace(int device_type, int device, void *block) {
  (void)device_type;
  (void)device;
  return utvm_memory_give(block) ? 0 : -1;
}

/* There is one core, which runs a group as a single task. */
int TVMBackendParallelLaunch(task_t task, void *data, int tasks) {
  group_t group = {NULL, 1};
  (void)tasks;
  return task(0, &group, data);
}

int TVMBackendParallelBarrier(int task, group_t *group) {
  (void)task;
  (void)group;
  return 0;
}

/* LLVM's code calls some of them through its own weak variables, which TVM's loader would set. */
extern task_launcher_t const __TVMBackendParallelLaunch;
extern task_barrier_t const __TVMBackendParallelBarrier;
extern raise_t const __TVMFFIErrorSetRaisedFromCStr;
task_launcher_t const __TVMBackendParallelLaunch = TVMBackendParallelLaunch;
task_barrier_t const __TVMBackendParallelBarrier = TVMBackendParallelBarrier;
raise_t const __TVMFFIErrorSetRaisedFromCStr = TVMFFIErrorSetRaisedFromCStr;

#if defined(__arm__)
/* Referenced by LLVM's unwind tables, which are not used here. */
void __aeabi_unwind_cpp_pr0(void);
void __aeabi_unwind_cpp_pr0(void) {
}
#endif
