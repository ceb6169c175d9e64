/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Functions with TVM's calling convention for tensors: those of uploaded modules, and the model itself.
 */
#ifndef UTVM_MODULES_H
#define UTVM_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "call.h"

/** A value: TVMFFIAny of tvm/ffi/c_api.h, in its little-endian layout. */
typedef struct {
  int32_t type; /**< UTVM_TYPE_... */
  uint32_t unused;
  uint64_t number; /**< integer (two's complement), bits of a float, or address of a utvm_dl_tensor_t */
} utvm_any_t;

/** A tensor: DLTensor of dlpack.h. */
typedef struct {
  void *data;
  int32_t device_type;
  int32_t device;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  const int64_t *shape;
  const int64_t *strides; /**< NULL: row-major */
  uint64_t byte_offset;
} utvm_dl_tensor_t;

/** A function NAME compiled by TVM, called __tvm_ffi_NAME: TVMFFISafeCallType. Returns 0, or an error code. */
typedef int32_t (*utvm_compiled_t)(void *self, const utvm_any_t *arguments, int32_t count, utvm_any_t *result);

/** A function that takes tensors, and the function that calls it. */
typedef struct utvm_tensor_function utvm_tensor_function_t;
struct utvm_tensor_function {
  const char *name;
  bool (*call)(const utvm_tensor_function_t *function, const utvm_call_t *call);
  utvm_compiled_t compiled; /**< for utvm_call_compiled() */
};

/** All of the image, and how many handles of each are in use; the firmware builder writes them. */
extern const utvm_tensor_function_t utvm_tensor_functions[];
extern const uint32_t utvm_tensor_function_count;
extern uint32_t utvm_tensor_function_uses[];

/** Call a function compiled by TVM, with tensors and numbers. */
bool utvm_call_compiled(const utvm_tensor_function_t *function, const utvm_call_t *call);

#endif
