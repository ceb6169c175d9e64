/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Time evaluators, which run a function, and the handles that a client holds: of functions and of evaluators alike.
 *
 * UTVM_EVALUATOR_HANDLE and UTVM_EVALUATORS, an evaluator's first handle and how many, come from the build.
 */
#ifndef UTVM_EVALUATORS_H
#define UTVM_EVALUATORS_H

#include "call.h"

/** Forget all evaluators. */
void utvm_evaluators_reset(void);

/** runtime.RPCTimeEvaluator(module, name, device type and number, number, repeat, min_repeat_ms, ...). */
bool utvm_make_evaluator(const utvm_call_t *call);

/** Give a handle back; returns false where it is none, or has been given back as often as it was handed out. */
bool utvm_handle_free(uint64_t handle);

/** Call what a handle is of; returns false where the error tells what is wrong. */
bool utvm_handle_call(uint64_t handle, const utvm_call_t *call);

#endif
