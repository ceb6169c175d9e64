/* SPDX-License-Identifier: Apache-2.0 */
/* The host-driven executor: the debug port is the only wire, a breakpoint is the only signal. */
#include <string.h>

#include "utvm.h"

volatile utvm_request_t utvm_request;

__attribute__((noinline)) void utvm_host_turn(void) {
  /* An instruction for the breakpoint, which no optimisation merges with another. The host resumes after it. */
  __asm__ volatile("nop\n.globl utvm_host_go\nutvm_host_go:" ::: "memory");
}

static void write_text(const char *text) {
  utvm_port_write(text, (uint32_t)strlen(text));
}

void utvm_main(void) {
  utvm_port_init();
  utvm_cycles_start();
  write_text("utvm: " UTVM_BOARD_NAME " is up\r\n");
  for (;;) {
    utvm_host_turn();
    (void)utvm_run(utvm_request.program);
    utvm_reply.stack_used = utvm_stack_used();
  }
}

void utvm_fault_report(void) {
  /* The host has a breakpoint at the return address. */
}
