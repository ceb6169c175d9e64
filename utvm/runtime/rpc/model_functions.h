/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The functions that work on models. Each returns whether it succeeded, as a utvm_function_t.
 */
#ifndef UTVM_MODEL_FUNCTIONS_H
#define UTVM_MODEL_FUNCTIONS_H

#include "call.h"
#include "modules.h"

/** Choose the first model of the firmware. */
void utvm_models_reset(void);

/** utvm.load(name): choose a model. */
bool utvm_load_model(const utvm_call_t *call);

/** utvm.set_input(index, tensor): copy a tensor into an input, where it stays until it is set again. */
bool utvm_set_input(const utvm_call_t *call);

/** utvm.put(index, offset, bytes): write a part of an input, where it stays until it is written again. */
bool utvm_put_input(const utvm_call_t *call);

/** utvm.take(index, offset, count): return bytes of an output of the last run. */
bool utvm_take_output(const utvm_call_t *call);

/** utvm.run(): run the model once; returns the cycles that it took. */
bool utvm_run_model(const utvm_call_t *call);

/** utvm.profile(): run the model once and store the cycles of each step; returns the number of steps stored. */
bool utvm_profile_model(const utvm_call_t *call);

/** utvm.step_cycles(first): the cycles of steps from one on, 64 bits each, as many as a packet holds. */
bool utvm_tell_step_cycles(const utvm_call_t *call);

/** utvm.limit(milliseconds): a run that takes longer is a fault; 0 is no limit. */
bool utvm_limit_time(const utvm_call_t *call);

/** utvm.get_output(index, tensor): copy an output of the last run into a tensor. */
bool utvm_get_output(const utvm_call_t *call);

/** main(inputs..., outputs...): run the model once on tensors. */
bool utvm_run_on_tensors(const utvm_tensor_function_t *function, const utvm_call_t *call);

#endif
