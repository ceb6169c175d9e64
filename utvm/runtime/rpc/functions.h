/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The functions that a client can call: built-in ones, the operators of the models, and functions that take tensors.
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
 * Set the list of built-in functions, once, before any other call.
 *
 * @param uses  room for as many counts: how many handles of each are in use
 */
void utvm_functions_list(const utvm_builtin_t *list, uint32_t *uses, uint32_t count);

/** Forget all handles. */
void utvm_functions_reset(void);

/** Return the handle of a function, or 0 if none has that name. Every handle must be released. */
uint64_t utvm_function_find(const uint8_t *name, uint32_t length);

/** Release a handle; returns false if it is invalid, or was released as often as it was returned. */
bool utvm_function_free(uint64_t handle);

/** Call a function; returns false, with an error message, on failure. */
bool utvm_function_call(uint64_t handle, const utvm_call_t *call);

/** ffi.SystemLib(): the module of all functions. */
bool utvm_tell_library(const utvm_call_t *call);

/** tvm.rpc.server.ModuleGetFunction(module, name, ...): a function of that module. */
bool utvm_get_from_library(const utvm_call_t *call);

#endif
