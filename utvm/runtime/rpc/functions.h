/**
 * The functions that a client can call.
 */
#ifndef UTVM_FUNCTIONS_H
#define UTVM_FUNCTIONS_H

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

/** Forget everything that belongs to a client: handles, evaluators, the chosen program. */
void utvm_functions_reset(void);

/** Return the handle of a function, or 0 where there is none of that name. Each is to be given back. */
uint64_t utvm_function_find(const uint8_t *name, uint32_t length);

/** Give a handle back; returns false where it is none, or has been given back as often as it was handed out. */
bool utvm_function_free(uint64_t handle);

/** Call a function; returns false where the error tells what is wrong. */
bool utvm_function_call(uint64_t handle, const utvm_call_t *call);

/**
 * Find a tensor's bytes.
 *
 * @param bytes  how many are needed
 * @return NULL, and the error says why, where they do not lie in one block of memory
 */
uint8_t *utvm_tensor_bytes(const utvm_tensor_t *tensor, uint64_t bytes, utvm_text_t *error);

/** How many calls have been made since reset, those that failed counted. */
uint32_t utvm_function_calls(void);

#endif
