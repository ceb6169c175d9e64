/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Time evaluators, which run a function, and the client's handles, both of functions and of evaluators.
 *
 * UTVM_EVALUATOR_HANDLE and UTVM_EVALUATORS, the first evaluator's handle and their number, come from the build.
 */
#ifndef UTVM_EVALUATORS_H
#define UTVM_EVALUATORS_H

#include "call.h"

/** Forget all evaluators. */
void utvm_evaluators_reset(void);

/** runtime.RPCTimeEvaluator(module, name, device type and number, number, repeat, min_repeat_ms, ...). */
bool utvm_make_evaluator(const utvm_call_t *call);

/** Release a handle; returns false if it is invalid, or was released as often as it was returned. */
bool utvm_handle_free(uint64_t handle);

/** Call the function or evaluator of a handle; returns false, with an error message, on failure. */
bool utvm_handle_call(uint64_t handle, const utvm_call_t *call);

#endif
