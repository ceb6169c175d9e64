/* The functions of every board, and the operators of its models: names, handles, and who still holds them. */
#include "functions.h"

#include <stddef.h>
#include <string.h>

#include "builtins.h"
#include "evaluators.h"
#include "server.h"
#include "utvm.h"

#define LIBRARY_HANDLE 0x20000u

typedef bool (*function_t)(const utvm_call_t *call);

typedef struct {
  const char *name;
  function_t run;
} builtin_t;

static uint32_t library_uses;

bool utvm_refuse(const utvm_call_t *call, const char *words) {
  utvm_text_add(call->error, words);
  return false;
}

bool utvm_is_number(const utvm_value_t *value) {
  return (value->type == UTVM_TYPE_INTEGER) || (value->type == UTVM_TYPE_BOOL);
}

/* The stock client splits copies so that each fits (RPCClientSession::CopyToRemote in TVM's rpc_endpoint.cc). */
static bool tell_packet_size(const utvm_call_t *call) {
  utvm_write_result(call->reply, UTVM_TYPE_INTEGER, UTVM_RPC_PACKET_BYTES);
  return true;
}

static bool tell_library(const utvm_call_t *call) {
  library_uses++;
  utvm_write_result(call->reply, UTVM_TYPE_MODULE, LIBRARY_HANDLE);
  return true;
}

static bool get_from_library(const utvm_call_t *call) {
  bool good = (call->count >= 2u) && (call->values[1].bytes != NULL);
  if (good) {
    const uint64_t handle = utvm_function_find(call->values[1].bytes, call->values[1].length);
    utvm_write_result(call->reply, (handle != 0u) ? UTVM_TYPE_FUNCTION : UTVM_TYPE_NONE, handle);
  }
  return good || utvm_refuse(call, "a function of the library is asked for by its name");
}

static const builtin_t builtins[] = {
    {"utvm.load", utvm_load_model},
    {"utvm.set_input", utvm_set_input},
    {"utvm.run", utvm_run_model},
    {"utvm.get_output", utvm_get_output},
    {"utvm.stats", utvm_tell_stats},
    {"tvm.rpc.server.GetCRTMaxPacketSize", tell_packet_size},
    {"runtime.RPCTimeEvaluator", utvm_make_evaluator},
    {"ffi.SystemLib", tell_library},
    {"tvm.rpc.server.ModuleGetFunction", get_from_library},
    {"utvm.put", utvm_put_input},
    {"utvm.take", utvm_take_output},
    {"utvm.profile", utvm_profile_model},
    {"utvm.step_cycles", utvm_tell_step_cycles},
    {"utvm.limit", utvm_limit_time},
};

#define BUILTINS ((uint32_t)(sizeof builtins / sizeof builtins[0]))

static uint32_t builtin_uses[BUILTINS];
static uint32_t calls_made;

uint32_t utvm_function_calls(void) {
  return calls_made;
}

static const char *name_of(uint32_t index) {
  return (index < BUILTINS) ? builtins[index].name : utvm_operators[index - BUILTINS].name;
}

/* How often a handle has been handed out and not been given back; NULL where it can be none. */
static uint32_t *uses_of(uint64_t handle) {
  uint32_t *uses = NULL;
  if (handle == LIBRARY_HANDLE) {
    uses = &library_uses;
  } else if ((handle >= 1u) && (handle <= BUILTINS)) {
    uses = &builtin_uses[handle - 1u];
  } else if ((handle > BUILTINS) && ((handle - BUILTINS) <= utvm_operator_count)) {
    uses = &utvm_operator_uses[handle - BUILTINS - 1u];
  } else {
    /* No handle of these. */
  }
  return uses;
}

void utvm_functions_reset(void) {
  utvm_evaluators_reset();
  utvm_models_reset();
  (void)memset(builtin_uses, 0, sizeof builtin_uses);
  library_uses = 0u;
  for (uint32_t index = 0u; index < utvm_operator_count; index++) {
    utvm_operator_uses[index] = 0u;
  }
}

uint64_t utvm_function_find(const uint8_t *name, uint32_t length) {
  uint64_t handle = 0u;
  for (uint32_t index = 0u; (handle == 0u) && (index < (BUILTINS + utvm_operator_count)); index++) {
    if (utvm_text_is(name_of(index), name, length)) {
      handle = (uint64_t)index + 1u;
      (*uses_of(handle))++;
    }
  }
  return handle;
}

static bool give_back(uint64_t handle) {
  uint32_t *uses = uses_of(handle);
  const bool good = (uses != NULL) && (*uses > 0u);
  if (good) {
    (*uses)--;
  }
  return good;
}

bool utvm_function_free(uint64_t handle) {
  const uint64_t evaluated = utvm_evaluator_function(handle);
  if (evaluated != 0u) {
    utvm_evaluator_free(handle);
  }
  return give_back((evaluated != 0u) ? evaluated : handle);
}

bool utvm_function_call_plain(uint64_t handle, const utvm_call_t *call) {
  const uint32_t *uses = uses_of(handle);
  bool good;
  if ((uses == NULL) || (*uses == 0u) || (handle == LIBRARY_HANDLE)) {
    good = utvm_refuse(call, "the function to be called is not in use: its handle has been freed, or never was one");
  } else if (handle <= BUILTINS) {
    good = builtins[handle - 1u].run(call);
  } else {
    good = utvm_run_operator(&utvm_operators[handle - BUILTINS - 1u], call);
  }
  return good;
}

bool utvm_function_call(uint64_t handle, const utvm_call_t *call) {
  calls_made++;
  const bool evaluator = utvm_evaluator_function(handle) != 0u;
  return evaluator ? utvm_evaluate(handle, call) : utvm_function_call_plain(handle, call);
}
