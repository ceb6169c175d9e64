/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program and stores its results, for every executor. */
#include "utvm.h"

volatile utvm_reply_t utvm_reply;
volatile uint32_t utvm_interrupts;
volatile utvm_running_t utvm_running = {UTVM_NOTHING, UTVM_NOTHING};

static uint64_t limit;

void utvm_limit_runs(uint64_t cycles) {
  limit = cycles;
}

void utvm_run_begins(uint32_t program, uint32_t step) {
  utvm_running.step = step;
  utvm_running.program = program;
  utvm_alarm(limit);
}

void utvm_run_ends(void) {
  utvm_alarm(0u);
  utvm_running.program = UTVM_NOTHING;
}

int32_t utvm_run(uint32_t program) {
  if (program >= utvm_program_count) {
    utvm_reply.status = UTVM_NO_SUCH_PROGRAM;
    utvm_reply.cycles = 0;
  } else {
    const utvm_program_t *chosen = &utvm_programs[program];
    utvm_run_begins(program, UTVM_NOTHING);
    const uint64_t begin = utvm_cycles();
    const int32_t status = chosen->run(chosen->inputs, chosen->outputs, utvm_arena);
    const uint64_t end = utvm_cycles();
    utvm_run_ends();
    if (utvm_profiling) {
      utvm_profile_end(end);
    }
    utvm_reply.status = status;
    utvm_reply.cycles = end - begin;
  }
  utvm_reply.interrupts = utvm_interrupts;
  utvm_reply.runs++;
  return utvm_reply.status;
}
