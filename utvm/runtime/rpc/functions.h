/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The functions that a client can call: a list that is handed in, the operators of the models, and what takes tensors.
 */
#ifndef UTVM_FUNCTIONS_H
#define UTVM_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "call.h"

/** A function and its name. */
typedef struct {
  const char *name;
  utvm_function_t run;
} utvm_builtin_t;

/**
 * Take the list of built-in functions over, once, before anything else.
 *
 * @param uses  room for as many counts: how many handles of each are in use
 */
void utvm_functions_list(const utvm_builtin_t *list, uint32_t *uses, uint32_t count);

/** Forget all handles. */
void utvm_functions_reset(void);

/** Return the handle of a function, or 0 where there is none of that name. Each is to be given back. */
uint64_t utvm_function_find(const uint8_t *name, uint32_t length);

/** Give a handle back; returns false where it is none, or has been given back as often as it was handed out. */
bool utvm_function_free(uint64_t handle);

/** Call a function; returns false where the error tells what is wrong. */
bool utvm_function_call(uint64_t handle, const utvm_call_t *call);

/** ffi.SystemLib(): the module that all functions are in. */
bool utvm_tell_library(const utvm_call_t *call);

/** tvm.rpc.server.ModuleGetFunction(module, name, ...): a function of it. */
bool utvm_get_from_library(const utvm_call_t *call);

#endif
