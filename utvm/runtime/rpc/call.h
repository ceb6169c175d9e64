/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A call of a function, and what every function does with one: refuse it, look at its arguments.
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
  utvm_text_t *error;         /**< takes what is wrong */
} utvm_call_t;

/** What is behind a name. Returns whether it went well: the result is written; if not, the error says what is wrong. */
typedef bool (*utvm_function_t)(const utvm_call_t *call);

/** Add words to the call's error; returns false. */
bool utvm_refuse(const utvm_call_t *call, const char *words);

/** Return whether an argument is an integer or a truth value. */
bool utvm_is_number(const utvm_value_t *value);

/**
 * Find a tensor's bytes.
 *
 * @param bytes  how many are needed
 * @return NULL, and the error says why, where they do not lie in one block of memory
 */
uint8_t *utvm_tensor_bytes(const utvm_tensor_t *tensor, uint64_t bytes, utvm_text_t *error);

#endif
