/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A call of a function, and helpers for every function: refuse a call, check its arguments.
 */
#ifndef UTVM_CALL_H
#define UTVM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "packet.h"
#include "text.h"

/** A call. */
typedef struct {
  const utvm_value_t *values; /**< its arguments */
  uint32_t count;             /**< of them */
  utvm_writer_t *reply;       /**< takes the result */
  utvm_text_t *error;         /**< takes the error message */
} utvm_call_t;

/** A function that clients call. Returns true if the result is written, false if the error message is. */
typedef bool (*utvm_function_t)(const utvm_call_t *call);

/** Add words to the call's error; returns false. */
bool utvm_refuse(const utvm_call_t *call, const char *words);

/** Return whether an argument is an integer or a truth value. */
bool utvm_is_number(const utvm_value_t *value);

/**
 * Find a tensor's bytes.
 *
 * @param bytes  how many are needed
 * @return NULL, with an error message, if they are not in one block of memory
 */
uint8_t *utvm_tensor_bytes(const utvm_tensor_t *tensor, uint64_t bytes, utvm_text_t *error);

#endif
