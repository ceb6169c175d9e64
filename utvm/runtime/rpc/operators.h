/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A model's operators, each as a function that clients can call.
 */
#ifndef UTVM_OPERATORS_H
#define UTVM_OPERATORS_H

#include "call.h"
#include "utvm.h"

/** Run an operator of a model on tensors: inputs, outputs, workspace. */
bool utvm_run_operator(const utvm_operator_t *operation, const utvm_call_t *call);

#endif
