/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port of boards without one of their own: everything keeps its reset state, including clocks. There is no console;
 * all output goes through the debug port.
 */
#include "utvm.h"

void utvm_port_init(void) {
  /* The board's data gives the clock after a reset. */
}

void utvm_port_write(const char *text, uint32_t size) {
  (void)text;
  (void)size;
}

void utvm_port_listen(void) {
  /* Nothing is received. */
}

void utvm_port_send(void) {
  /* Nothing can be sent. */
}

void utvm_port_drain(void) {
  /* Nothing is queued. */
}

void utvm_port_interrupt(void) {
  /* Without a console, no interrupt is enabled. */
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
