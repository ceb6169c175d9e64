/* The host-driven executor: the debug port is the only wire, a breakpoint is the only signal. */
#include <string.h>

#include "utvm.h"

volatile utvm_request_t utvm_request;
volatile utvm_reply_t utvm_reply;
volatile uint32_t utvm_interrupts;

__attribute__((noinline)) void utvm_host_turn(void) {
  /* An instruction for the breakpoint to sit on that no optimisation merges with another. */
  __asm__ volatile("nop" ::: "memory");
}

static void write_text(const char *text) {
  utvm_port_write(text, (uint32_t)strlen(text));
}

static void answer_request(void) {
  const uint32_t index = utvm_request.program;
  if (index >= utvm_program_count) {
    utvm_reply.status = UTVM_NO_SUCH_PROGRAM;
    utvm_reply.cycles = 0;
  } else {
    const utvm_program_t *program = &utvm_programs[index];
    const uint64_t begin = utvm_cycles();
    const int32_t status = program->run(program->inputs, program->outputs, utvm_arena);
    const uint64_t end = utvm_cycles();
    utvm_reply.status = status;
    utvm_reply.cycles = end - begin;
  }
  utvm_reply.stack_used = utvm_stack_used();
  utvm_reply.interrupts = utvm_interrupts;
  utvm_reply.runs++;
}

void utvm_main(void) {
  utvm_port_init();
  utvm_cycles_start();
  write_text("utvm: " UTVM_BOARD_NAME " is up\r\n");
  for (;;) {
    utvm_host_turn();
    answer_request();
  }
}
