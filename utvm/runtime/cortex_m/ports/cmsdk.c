/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with Arm's CMSDK, for QEMU: a console on an APB UART, a counter on an APB timer (DDI 0479). The clock
 * needs no setup. The board's data gives the addresses, the UART's receive line, and the clock of both.
 */
#include "cortex_m.h"
#include "utvm.h"

#define TIMER_CTRL UTVM_REGISTER(UTVM_PORT_TIMER)
#define TIMER_VALUE UTVM_REGISTER(UTVM_PORT_TIMER + 0x4u)
#define TIMER_RELOAD UTVM_REGISTER(UTVM_PORT_TIMER + 0x8u)
#define UART_DATA UTVM_REGISTER(UTVM_PORT_UART)
#define UART_STATE UTVM_REGISTER(UTVM_PORT_UART + 0x4u)
#define UART_CTRL UTVM_REGISTER(UTVM_PORT_UART + 0x8u)
#define UART_INTCLEAR UTVM_REGISTER(UTVM_PORT_UART + 0xCu)
#define UART_BAUDDIV UTVM_REGISTER(UTVM_PORT_UART + 0x10u)
#define NVIC_ISPR UTVM_REGISTER(0xE000E200u + (4u * (UTVM_PORT_LINE / 32u)))
#define LINE_BIT (1u << (UTVM_PORT_LINE % 32u))

#define TIMER_CTRL_ENABLE (1u << 0)
#define UART_STATE_TX_FULL (1u << 0)
#define UART_STATE_RX_FULL (1u << 1)
#define UART_CTRL_TX (1u << 0)
#define UART_CTRL_RX (1u << 1)
#define UART_CTRL_RX_INTERRUPT (1u << 3)
#define UART_INTCLEAR_RX (1u << 1)

#define LARGEST 0xFFFFFFFFu

void utvm_port_init(void) {
  UART_BAUDDIV = (UTVM_PORT_BUS_HZ + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  UART_CTRL = UART_CTRL_TX | UART_CTRL_RX;
}

#ifdef UTVM_PORT_COUNTS

void utvm_port_start_counter(void) {
  TIMER_CTRL = 0u;
  TIMER_RELOAD = LARGEST;
  TIMER_VALUE = LARGEST;
  TIMER_CTRL = TIMER_CTRL_ENABLE;
}

uint32_t utvm_port_counter(void) {
  return LARGEST - TIMER_VALUE;
}

/*
 * An instruction takes more than two ticks. The difference of two readings is wrong by less than a tick, so rounding to
 * the nearest whole number of instructions is exact.
 */
uint32_t utvm_port_cycles(uint32_t counts) {
  return (uint32_t)(((UTVM_COUNTS * (uint64_t)counts) + (UTVM_COUNTER_TICKS / 2u)) / UTVM_COUNTER_TICKS);
}

#endif

static void send(uint8_t byte) {
  while ((UART_STATE & UART_STATE_TX_FULL) != 0u) {
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
  NVIC_ISER(UTVM_PORT_LINE) = LINE_BIT;
  UART_CTRL |= UART_CTRL_RX_INTERRUPT;
  /* An earlier byte requests no interrupt and blocks later ones, so make the handler check once. */
  NVIC_ISPR = LINE_BIT;
}

/* The receive line serves both directions: it is set pending as long as there is data to send. */
void utvm_port_send(void) {
  NVIC_ISPR = LINE_BIT;
}

void utvm_port_drain(void) {
  /* Nothing is queued here. */
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  if ((UART_STATE & UART_STATE_RX_FULL) != 0u) {
    UART_INTCLEAR = UART_INTCLEAR_RX;
    utvm_pipe_received((uint8_t)UART_DATA);
  }
  if (utvm_pipe_next(&byte)) {
    send(byte);
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
