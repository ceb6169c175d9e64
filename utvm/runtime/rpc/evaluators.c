/* SPDX-License-Identifier: Apache-2.0 */
/* TVM's time_evaluator: a function that runs another one and returns its time. */
#include "evaluators.h"

#include <stddef.h>
#include <string.h>

#include "binary64.h"
#include "clock.h"
#include "functions.h"
#include "utvm.h"

#define ARGUMENTS 12u
#define MOST_REPEATS ((UTVM_RPC_PACKET_BYTES - 64u) / 8u)
#define MOST_RUNS 1000000u /* per call: a client's mistake must not keep the board busy for days */
#define SECONDS_BYTES 8u /* a binary64 number */

/* A function, its runs per result, and the number of results. */
typedef struct {
  uint64_t function; /* 0: not in use */
  uint32_t number;
  uint32_t repeats;
  uint64_t least_cycles;
} evaluator_t;

static evaluator_t evaluators[UTVM_EVALUATORS];

void utvm_evaluators_reset(void) {
  (void)memset(evaluators, 0, sizeof evaluators);
}

bool utvm_make_evaluator(const utvm_call_t *call) {
  const utvm_value_t *values = call->values;
  evaluator_t *free_one = NULL;
  bool good = (call->count == ARGUMENTS) && (values[1].bytes != NULL) && utvm_is_number(&values[4]) &&
              utvm_is_number(&values[5]) && utvm_is_number(&values[6]) && (values[4].number >= 1u) &&
              (values[4].number <= MOST_RUNS) && (values[5].number >= 1u) && (values[5].number <= MOST_REPEATS) &&
              ((values[4].number * values[5].number) <= MOST_RUNS) && (values[6].number <= UINT32_MAX);
  for (uint32_t index = 0u; index < UTVM_EVALUATORS; index++) {
    if (evaluators[index].function == 0u) {
      free_one = &evaluators[index];
    }
  }
  if (!good) {
    (void)utvm_refuse(call, "time_evaluator: number is at least 1, repeat from 1 to ");
    utvm_text_add_number(call->error, (int64_t)MOST_REPEATS);
    utvm_text_add(call->error, ", together at most 1000000");
  } else if (!UTVM_HAS_COUNTER) {
    good = utvm_refuse(call, "time_evaluator: the board has no counter");
  } else if (values[11].length != 0u) {
    good = utvm_refuse(call, "time_evaluator: boards have no functions to prepare a run (f_preproc)");
  } else if (free_one == NULL) {
    good = utvm_refuse(call, "time_evaluator: the board has four evaluators, and all are in use");
  } else {
    free_one->function = utvm_function_find(values[1].bytes, values[1].length);
    good = free_one->function != 0u;
    if (!good) {
      (void)utvm_refuse(call, "time_evaluator: the board has no function ");
      utvm_text_add_bytes(call->error, values[1].bytes, values[1].length);
    } else {
      free_one->number = (uint32_t)values[4].number;
      free_one->repeats = (uint32_t)values[5].number;
      free_one->least_cycles = values[6].number * UTVM_CYCLES_PER_MILLISECOND;
      utvm_write_result(call->reply, UTVM_TYPE_FUNCTION,
                        UTVM_EVALUATOR_HANDLE + (uint64_t)(free_one - evaluators));
    }
  }
  return good;
}

/* Run a function as often as requested, and more often if that takes less than the minimum time. */
static bool evaluate_once(evaluator_t *evaluator, const utvm_call_t *call, uint64_t *seconds) {
  bool good = true;
  uint64_t passed = 0u;
  bool enough = false;
  while (good && (!enough)) {
    const uint64_t begin = utvm_cycles();
    for (uint32_t run = 0u; good && (run < evaluator->number); run++) {
      good = utvm_function_call(evaluator->function, call);
    }
    passed = utvm_cycles() - begin;
    enough = (passed >= evaluator->least_cycles) || (evaluator->number > (MOST_RUNS / 2u));
    if (!enough) {
      evaluator->number *= 2u;
    }
  }
  *seconds = utvm_binary64_ratio(passed, (uint64_t)UTVM_CLOCK_HZ * evaluator->number);
  return good;
}

static bool evaluate(evaluator_t *evaluator, const utvm_call_t *call) {
  static uint8_t measured[MOST_REPEATS * SECONDS_BYTES];
  bool good = true;
  for (uint32_t repeat = 0u; good && (repeat < evaluator->repeats); repeat++) {
    uint64_t seconds;
    good = evaluate_once(evaluator, call, &seconds);
    utvm_split(&measured[repeat * SECONDS_BYTES], seconds, SECONDS_BYTES);
  }
  if (good) {
    utvm_write_result_bytes(call->reply, UTVM_TYPE_BYTES, measured, evaluator->repeats * SECONDS_BYTES);
  }
  return good;
}

/* The evaluator of a handle; NULL if the handle is not an evaluator's. */
static evaluator_t *evaluator_of(uint64_t handle) {
  evaluator_t *found = NULL;
  if ((handle >= UTVM_EVALUATOR_HANDLE) && ((handle - UTVM_EVALUATOR_HANDLE) < UTVM_EVALUATORS) &&
      (evaluators[handle - UTVM_EVALUATOR_HANDLE].function != 0u)) {
    found = &evaluators[handle - UTVM_EVALUATOR_HANDLE];
  }
  return found;
}

bool utvm_handle_free(uint64_t handle) {
  evaluator_t *evaluator = evaluator_of(handle);
  uint64_t function = handle;
  if (evaluator != NULL) {
    function = evaluator->function;
    evaluator->function = 0u;
  }
  return utvm_function_free(function);
}

bool utvm_handle_call(uint64_t handle, const utvm_call_t *call) {
  evaluator_t *evaluator = evaluator_of(handle);
  return (evaluator != NULL) ? evaluate(evaluator, call) : utvm_function_call(handle, call);
}
