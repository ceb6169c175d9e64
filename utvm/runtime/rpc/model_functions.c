/* SPDX-License-Identifier: Apache-2.0 */
/* The functions for models. */
#include "model_functions.h"

#include <stddef.h>
#include <string.h>

#include "clock.h"
#include "utvm.h"

#define MOST_STEPS 64u /* in one reply */
#define CYCLES_BYTES 8u

static uint32_t chosen;

void utvm_models_reset(void) {
  chosen = 0u;
  utvm_limit_runs(0u);
}

static bool is_type(const utvm_tensor_t *tensor, const utvm_tensor_type_t *type) {
  bool same = (tensor->code == type->code) && (tensor->bits == type->bits) && (tensor->lanes == 1u) &&
              (tensor->dimensions == (int32_t)type->dimensions);
  for (int32_t index = 0; same && (index < tensor->dimensions); index++) {
    same = tensor->shape[index] == (int64_t)type->shape[index];
  }
  return same;
}

static void describe(utvm_text_t *text, uint8_t code, uint8_t bits, const int64_t *shape, const uint32_t *extents,
                     uint32_t dimensions) {
  static const char *const kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  utvm_text_add(text, (code < (sizeof kinds / sizeof kinds[0])) ? kinds[code] : "type");
  utvm_text_add_number(text, bits);
  utvm_text_add(text, "[");
  for (uint32_t index = 0u; index < dimensions; index++) {
    utvm_text_add(text, (index > 0u) ? ", " : "");
    utvm_text_add_number(text, (shape != NULL) ? shape[index] : (int64_t)extents[index]);
  }
  utvm_text_add(text, "]");
}

/* Find the bytes of an argument, which must be a tensor of this type. */
static bool find_argument(const utvm_call_t *call, uint32_t number, const utvm_tensor_type_t *type,
                          uint8_t **bytes) {
  const utvm_tensor_t *tensor = &call->values[number].tensor;
  bool good = false;
  if (!is_type(tensor, type)) {
    utvm_text_add(call->error, "the model has ");
    describe(call->error, type->code, type->bits, NULL, type->shape, type->dimensions);
    utvm_text_add(call->error, " there, the tensor is ");
    describe(call->error, tensor->code, tensor->bits, tensor->shape, NULL, (uint32_t)tensor->dimensions);
  } else {
    *bytes = utvm_tensor_bytes(tensor, tensor->bytes, call->error);
    good = *bytes != NULL;
  }
  return good;
}

/* Find the bytes of an input or output in a call (index, tensor), and of the tensor. */
static bool find_pair(const utvm_call_t *call, const utvm_tensor_type_t *types, uint32_t count, uint32_t *index,
                      uint8_t **bytes) {
  bool good = false;
  if ((call->count != 2u) || (!utvm_is_number(&call->values[0])) || (call->values[1].type != UTVM_TYPE_TENSOR)) {
    (void)utvm_refuse(call, "the arguments are a number and a tensor");
  } else if (call->values[0].number >= count) {
    utvm_text_add(call->error, "there is no number ");
    utvm_text_add_number(call->error, (int64_t)call->values[0].number);
    utvm_text_add(call->error, ": the model has ");
    utvm_text_add_number(call->error, (int64_t)count);
  } else {
    *index = (uint32_t)call->values[0].number;
    good = find_argument(call, 1u, &types[*index], bytes);
  }
  return good;
}

bool utvm_load_model(const utvm_call_t *call) {
  uint32_t found = utvm_program_count;
  if ((call->count == 1u) && (call->values[0].bytes != NULL)) {
    for (uint32_t index = 0u; index < utvm_program_count; index++) {
      if (utvm_text_is(utvm_programs[index].name, call->values[0].bytes, call->values[0].length)) {
        found = index;
      }
    }
  }
  if (found < utvm_program_count) {
    chosen = found;
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return (found < utvm_program_count) || utvm_refuse(call, "the firmware has no model of that name");
}

bool utvm_set_input(const utvm_call_t *call) {
  const utvm_signature_t *signature = &utvm_signatures[chosen];
  uint32_t index;
  uint8_t *bytes;
  const bool good = find_pair(call, signature->inputs, signature->input_count, &index, &bytes);
  if (good) {
    (void)memcpy((void *)utvm_programs[chosen].inputs[index], bytes, signature->inputs[index].bytes);
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good;
}

bool utvm_get_output(const utvm_call_t *call) {
  const utvm_signature_t *signature = &utvm_signatures[chosen];
  uint32_t index;
  uint8_t *bytes;
  const bool good = find_pair(call, signature->outputs, signature->output_count, &index, &bytes);
  if (good) {
    (void)memcpy(bytes, utvm_programs[chosen].outputs[index], signature->outputs[index].bytes);
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good;
}

/* Check that (index, offset, ...) is within one of these tensors; returns its bytes from the offset on. */
static bool find_part(const utvm_call_t *call, const utvm_tensor_type_t *types, uint32_t count, uint32_t *left) {
  bool good = (call->count == 3u) && utvm_is_number(&call->values[0]) && utvm_is_number(&call->values[1]) &&
              (call->values[0].number < count);
  if (good) {
    const uint32_t bytes = types[call->values[0].number].bytes;
    good = call->values[1].number <= bytes;
    *left = good ? (bytes - (uint32_t)call->values[1].number) : 0u;
  }
  return good;
}

bool utvm_put_input(const utvm_call_t *call) {
  const utvm_signature_t *signature = &utvm_signatures[chosen];
  uint32_t left = 0u;
  const bool good = find_part(call, signature->inputs, signature->input_count, &left) &&
                    (call->values[2].bytes != NULL) && (call->values[2].length <= left);
  if (good) {
    uint8_t *input = (uint8_t *)utvm_programs[chosen].inputs[call->values[0].number];
    (void)memcpy(&input[call->values[1].number], call->values[2].bytes, call->values[2].length);
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good ||
         utvm_refuse(call, "the arguments are an input's number, an offset and bytes that fit in from there");
}

bool utvm_take_output(const utvm_call_t *call) {
  const utvm_signature_t *signature = &utvm_signatures[chosen];
  uint32_t left = 0u;
  const bool good = find_part(call, signature->outputs, signature->output_count, &left) &&
                    utvm_is_number(&call->values[2]) && (call->values[2].number <= left);
  if (good) {
    const uint8_t *output = (const uint8_t *)utvm_programs[chosen].outputs[call->values[0].number];
    utvm_write_result_bytes(call->reply, UTVM_TYPE_BYTES, &output[call->values[1].number],
                            (uint32_t)call->values[2].number);
  }
  return good ||
         utvm_refuse(call, "the arguments are an output's number, an offset and how many bytes from there");
}

/* Run the chosen model by one of two functions; returns whether it succeeded. */
static bool runs(int32_t (*function)(uint32_t program), const utvm_call_t *call) {
  bool good = chosen < utvm_program_count;
  if (!good) {
    (void)utvm_refuse(call, "the firmware has no model, but the functions of a module");
  } else {
    const int32_t status = function(chosen);
    good = status == 0;
    if (!good) {
      utvm_text_add(call->error, "model ");
      utvm_text_add(call->error, utvm_programs[chosen].name);
      utvm_text_add(call->error, " returned error code ");
      utvm_text_add_number(call->error, status);
    }
  }
  return good;
}

/* The same for a call without arguments. */
static bool run_by(int32_t (*function)(uint32_t program), const utvm_call_t *call) {
  const bool good = call->count == 0u;
  if (!good) {
    (void)utvm_refuse(call, "there are no arguments: utvm.set_input gives the inputs");
  }
  return good && runs(function, call);
}

bool utvm_run_on_tensors(const utvm_tensor_function_t *function, const utvm_call_t *call) {
  const utvm_signature_t *signature = &utvm_signatures[chosen];
  const utvm_program_t *program = &utvm_programs[chosen];
  const uint32_t inputs = signature->input_count;
  uint8_t *bytes[UTVM_ARGUMENTS];
  bool good = (call->count == (inputs + signature->output_count)) && (call->count <= (uint32_t)UTVM_ARGUMENTS);
  (void)function;
  if (!good) {
    (void)utvm_refuse(call, "the model takes its inputs and its outputs, as many tensors as these are together: ");
    utvm_text_add_number(call->error, (int64_t)inputs + (int64_t)signature->output_count);
  }
  for (uint32_t index = 0u; good && (index < call->count); index++) {
    const utvm_tensor_type_t *type =
        (index < inputs) ? &signature->inputs[index] : &signature->outputs[index - inputs];
    good = find_argument(call, index, type, &bytes[index]);
  }
  for (uint32_t index = 0u; good && (index < inputs); index++) {
    (void)memcpy((void *)program->inputs[index], bytes[index], signature->inputs[index].bytes);
  }
  good = good && runs(utvm_run, call);
  for (uint32_t index = inputs; good && (index < call->count); index++) {
    (void)memcpy(bytes[index], program->outputs[index - inputs], signature->outputs[index - inputs].bytes);
  }
  if (good) {
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good;
}

bool utvm_run_model(const utvm_call_t *call) {
  const bool good = run_by(utvm_run, call);
  if (good) {
    utvm_write_result(call->reply, UTVM_TYPE_INTEGER, utvm_reply.cycles);
  }
  return good;
}

static int32_t profile(uint32_t program) {
  utvm_profile_begin();
  const int32_t status = utvm_run(program);
  utvm_profiling = false;
  return status;
}

bool utvm_profile_model(const utvm_call_t *call) {
  const bool good = run_by(profile, call);
  if (good) {
    utvm_write_result(call->reply, UTVM_TYPE_INTEGER, utvm_step_room);
  }
  return good;
}

bool utvm_tell_step_cycles(const utvm_call_t *call) {
  static uint8_t bytes[MOST_STEPS * CYCLES_BYTES];
  const bool good =
      (call->count == 1u) && utvm_is_number(&call->values[0]) && (call->values[0].number <= utvm_step_room);
  if (good) {
    const uint32_t first = (uint32_t)call->values[0].number;
    uint32_t count = utvm_step_room - first;
    if (count > MOST_STEPS) {
      count = MOST_STEPS;
    }
    for (uint32_t index = 0u; index < count; index++) {
      utvm_split(&bytes[index * CYCLES_BYTES], utvm_step_cycles[first + index], CYCLES_BYTES);
    }
    utvm_write_result_bytes(call->reply, UTVM_TYPE_BYTES, bytes, count * CYCLES_BYTES);
  }
  return good || utvm_refuse(call, "the argument is the number of a step");
}

bool utvm_limit_time(const utvm_call_t *call) {
  bool good = (call->count == 1u) && utvm_is_number(&call->values[0]) && (call->values[0].number <= UINT32_MAX);
  if (!good) {
    (void)utvm_refuse(call, "the argument is a number of milliseconds, 0 for no limit");
  } else if (!UTVM_HAS_COUNTER) {
    good = utvm_refuse(call, "a run cannot be limited: the board has no counter");
  } else {
    utvm_limit_runs(call->values[0].number * UTVM_CYCLES_PER_MILLISECOND);
    utvm_write_result(call->reply, UTVM_TYPE_NONE, 0u);
  }
  return good;
}
