/**
 * Handles of time evaluators. UTVM_EVALUATOR_HANDLE and UTVM_EVALUATORS, the first and how many, come from the build.
 */
#ifndef UTVM_EVALUATORS_H
#define UTVM_EVALUATORS_H

#include "functions.h"

/** Forget all. */
void utvm_evaluators_reset(void);

/** Return the handle of the function that an evaluator runs; 0 where the handle is that of no evaluator. */
uint64_t utvm_evaluator_function(uint64_t handle);

/** Forget one. */
void utvm_evaluator_free(uint64_t handle);

/** Run one; returns false where the error tells what is wrong. */
bool utvm_evaluate(uint64_t handle, const utvm_call_t *call);

#endif
