/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port of a board that has none: everything stays as a reset leaves it, clocks included, and there is no console.
 * What the board says goes through the debug port.
 */
#include "utvm.h"

void utvm_port_init(void) {
  /* The clock of after a reset is the one that its data names. */
}

void utvm_port_write(const char *text, uint32_t size) {
  (void)text;
  (void)size;
}

void utvm_port_listen(void) {
  /* Nothing comes. */
}

void utvm_port_send(void) {
  /* Nobody listens. */
}

void utvm_port_drain(void) {
  /* Nothing is under way. */
}

void utvm_port_interrupt(void) {
  /* Of no line: without a console there are none that are expected. */
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
