/**
 * The functions behind the names, and what they share. Each returns whether it went well: it has then written its
 * result; if not, the call's error tells what is wrong.
 */
#ifndef UTVM_BUILTINS_H
#define UTVM_BUILTINS_H

#include "functions.h"
#include "utvm.h"

/** Of the core clock. */
#define UTVM_CYCLES_PER_MILLISECOND ((uint64_t)UTVM_CLOCK_HZ / 1000u)

/** Add words to the call's error; returns false. */
bool utvm_refuse(const utvm_call_t *call, const char *words);

/** Return whether an argument is an integer or a truth value. */
bool utvm_is_number(const utvm_value_t *value);

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

/** utvm.profile(): run the model once and keep the cycles of each step; returns the number of steps kept. */
bool utvm_profile_model(const utvm_call_t *call);

/** utvm.step_cycles(first): the cycles of steps from one on, 64 bits each, as many as a packet holds. */
bool utvm_tell_step_cycles(const utvm_call_t *call);

/** utvm.limit(milliseconds): a run that takes longer is a fault; 0 is no limit. */
bool utvm_limit_time(const utvm_call_t *call);

/** utvm.get_output(index, tensor): copy an output of the last run into a tensor. */
bool utvm_get_output(const utvm_call_t *call);

/** utvm.stats(): what the board has counted, as JSON. */
bool utvm_tell_stats(const utvm_call_t *call);

/** Run an operator of a model on tensors: what it reads, what it writes, its workspace. */
bool utvm_run_operator(const utvm_operator_t *operation, const utvm_call_t *call);

/** runtime.RPCTimeEvaluator(module, name, device type and number, number, repeat, min_repeat_ms, ...). */
bool utvm_make_evaluator(const utvm_call_t *call);

/** Call a function that is no evaluator. */
bool utvm_function_call_plain(uint64_t handle, const utvm_call_t *call);

#endif
