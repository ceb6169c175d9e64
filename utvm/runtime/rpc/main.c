/* SPDX-License-Identifier: Apache-2.0 */
/* The RPC executor: answers a host's requests over any stream of bytes. */
#include "builtins.h"
#include "link.h"
#include "pipe.h"
#include "utvm.h"

void utvm_main(void) {
  static const char words[] = "utvm: " UTVM_BOARD_NAME " is up";
  utvm_port_init();
  utvm_cycles_start();
  utvm_builtins_init();
  utvm_link_init();
  utvm_link_log(words, (uint32_t)sizeof words - 1u);
  for (;;) {
    utvm_link_take(utvm_pipe_read());
  }
}

void utvm_fault_report(void) {
  uint32_t bytes;
  const uint8_t *stack = utvm_fault_stack(&bytes);
  utvm_link_fault((const uint8_t *)&utvm_fault, (uint32_t)sizeof utvm_fault, stack, bytes);
}
