/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with a UART of the kind 16550 (Texas Instruments TL16C550C, SLLS177). The board's data gives its address,
 * the distance of registers in bytes if it is not one, and the line. The clock divider keeps its reset value: this is for
 * emulators, which ignore the speed of the line.
 */
#include "bare_metal.h"
#include "utvm.h"

#ifndef UTVM_PORT_STRIDE
#define UTVM_PORT_STRIDE 1u
#endif

#define UART_REGISTER(number) (*(volatile uint8_t *)(UTVM_PORT_UART + (UTVM_PORT_STRIDE * (number))))
#define UART_DATA UART_REGISTER(0u)
#define UART_INTERRUPTS UART_REGISTER(1u)
#define UART_FIFO UART_REGISTER(2u)
#define UART_FORMAT UART_REGISTER(3u)
#define UART_STATE UART_REGISTER(5u)

#define UART_INTERRUPT_RECEIVED (1u << 0)
#define UART_INTERRUPT_EMPTY (1u << 1)
#define UART_FIFO_ON 0x07u /* and both emptied */
#define UART_FORMAT_8N1 0x03u
#define UART_STATE_RECEIVED (1u << 0)
#define UART_STATE_EMPTY (1u << 5)

void utvm_port_init(void) {
  UART_FORMAT = UART_FORMAT_8N1;
  UART_FIFO = UART_FIFO_ON;
  UART_INTERRUPTS = 0u;
}

static void send(uint8_t byte) {
  while ((UART_STATE & UART_STATE_EMPTY) == 0u) {
  }
  UART_DATA = byte;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    send((uint8_t)text[index]);
  }
}

void utvm_port_listen(void) {
  utvm_console_lines_on();
  UART_INTERRUPTS = UART_INTERRUPT_RECEIVED;
}

void utvm_port_send(void) {
  /* This requests an interrupt at once. */
  UART_INTERRUPTS = UART_INTERRUPT_RECEIVED | UART_INTERRUPT_EMPTY;
}

void utvm_port_drain(void) {
  /* Nothing is queued here. */
}

static void send_next(void) {
  uint8_t byte;
  if (utvm_pipe_next(&byte)) {
    UART_DATA = byte;
  } else {
    UART_INTERRUPTS = UART_INTERRUPT_RECEIVED;
  }
}

void utvm_port_interrupt(void) {
  utvm_interrupts++;
  while ((UART_STATE & UART_STATE_RECEIVED) != 0u) {
    utvm_pipe_received(UART_DATA);
  }
  if (((UART_INTERRUPTS & UART_INTERRUPT_EMPTY) != 0u) && ((UART_STATE & UART_STATE_EMPTY) != 0u)) {
    send_next();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
