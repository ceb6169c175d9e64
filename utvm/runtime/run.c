/* Running a program and keeping what is to be known of it: for every executor. */
#include "utvm.h"

volatile utvm_reply_t utvm_reply;
volatile uint32_t utvm_interrupts;

int32_t utvm_run(uint32_t program) {
  if (program >= utvm_program_count) {
    utvm_reply.status = UTVM_NO_SUCH_PROGRAM;
    utvm_reply.cycles = 0;
  } else {
    const utvm_program_t *chosen = &utvm_programs[program];
    const uint64_t begin = utvm_cycles();
    const int32_t status = chosen->run(chosen->inputs, chosen->outputs, utvm_arena);
    const uint64_t end = utvm_cycles();
    utvm_reply.status = status;
    utvm_reply.cycles = end - begin;
  }
  utvm_reply.interrupts = utvm_interrupts;
  utvm_reply.runs++;
  return utvm_reply.status;
}
