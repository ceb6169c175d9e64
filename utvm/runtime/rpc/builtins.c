/* SPDX-License-Identifier: Apache-2.0 */
/* The table of built-in functions, at the top of the layers; lower layers get it at start-up. */
#include "builtins.h"

#include "evaluators.h"
#include "functions.h"
#include "model_functions.h"
#include "stats.h"

/* The stock client splits copies so that each fits (RPCClientSession::CopyToRemote in TVM's rpc_endpoint.cc). */
static bool tell_packet_size(const utvm_call_t *call) {
  utvm_write_result(call->reply, UTVM_TYPE_INTEGER, UTVM_RPC_PACKET_BYTES);
  return true;
}

static const utvm_builtin_t builtins[] = {
    {"utvm.load", utvm_load_model},
    {"utvm.set_input", utvm_set_input},
    {"utvm.run", utvm_run_model},
    {"utvm.get_output", utvm_get_output},
    {"utvm.stats", utvm_tell_stats},
    {"tvm.rpc.server.GetCRTMaxPacketSize", tell_packet_size},
    {"runtime.RPCTimeEvaluator", utvm_make_evaluator},
    {"ffi.SystemLib", utvm_tell_library},
    {"tvm.rpc.server.ModuleGetFunction", utvm_get_from_library},
    {"utvm.put", utvm_put_input},
    {"utvm.take", utvm_take_output},
    {"utvm.profile", utvm_profile_model},
    {"utvm.step_cycles", utvm_tell_step_cycles},
    {"utvm.limit", utvm_limit_time},
};

#define BUILTINS ((uint32_t)(sizeof builtins / sizeof builtins[0]))

void utvm_builtins_init(void) {
  static uint32_t uses[BUILTINS];
  utvm_functions_list(builtins, uses, BUILTINS);
}
