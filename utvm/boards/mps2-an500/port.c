/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of the MPS2 with AN500, for QEMU. The clock of 25 MHz is there from the start. Console on UART0, counter on
 * timer 0, both of Arm's CMSDK (DDI 0479, APB UART and APB timer; addresses and interrupt lines: DAI 0500).
 */
#include "cortex_m.h"
#include "utvm.h"

#define TIMER0_CTRL UTVM_REGISTER(0x40000000u)
#define TIMER0_VALUE UTVM_REGISTER(0x40000004u)
#define TIMER0_RELOAD UTVM_REGISTER(0x40000008u)
#define UART0_DATA UTVM_REGISTER(0x40004000u)
#define UART0_STATE UTVM_REGISTER(0x40004004u)
#define UART0_CTRL UTVM_REGISTER(0x40004008u)
#define UART0_INTCLEAR UTVM_REGISTER(0x4000400Cu)
#define UART0_BAUDDIV UTVM_REGISTER(0x40004010u)
#define NVIC_ISPR0 UTVM_REGISTER(0xE000E200u)

#define TIMER_CTRL_ENABLE (1u << 0)
#define UART_STATE_TX_FULL (1u << 0)
#define UART_STATE_RX_FULL (1u << 1)
#define UART_CTRL_TX (1u << 0)
#define UART_CTRL_RX (1u << 1)
#define UART_CTRL_RX_INTERRUPT (1u << 3)
#define UART_INTCLEAR_RX (1u << 1)
#define UART0_RX_LINE 0u

#define BUS_HZ 25000000u
#define LARGEST 0xFFFFFFFFu

void utvm_port_init(void) {
  UART0_BAUDDIV = (BUS_HZ + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  UART0_CTRL = UART_CTRL_TX | UART_CTRL_RX;
}

void utvm_port_start_counter(void) {
  TIMER0_CTRL = 0u;
  TIMER0_RELOAD = LARGEST;
  TIMER0_VALUE = LARGEST;
  TIMER0_CTRL = TIMER_CTRL_ENABLE;
}

uint32_t utvm_port_counter(void) {
  return LARGEST - TIMER0_VALUE;
}

/*
 * A tick is 40 ns and an instruction 128 ns. Two readings are less than a tick off what passed between them, so that
 * the nearest whole number of instructions is the right one.
 */
uint32_t utvm_port_cycles(uint32_t counts) {
  return (uint32_t)(((5u * (uint64_t)counts) + 8u) / 16u);
}

static void send(uint8_t byte) {
  while ((UART0_STATE & UART_STATE_TX_FULL) != 0u) {
  }
  UART0_DATA = byte;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    send((uint8_t)text[index]);
  }
}

void utvm_port_listen(void) {
  NVIC_ISER(UART0_RX_LINE) = 1u << UART0_RX_LINE;
  UART0_CTRL |= UART_CTRL_RX_INTERRUPT;
  /* A byte that came before asks for no interrupt, and keeps out those after it: the handler looks once by itself. */
  NVIC_ISPR0 = 1u << UART0_RX_LINE;
}

/* The line on which it receives stands for both: it is made pending as long as there is something to send. */
void utvm_port_send(void) {
  NVIC_ISPR0 = 1u << UART0_RX_LINE;
}

void utvm_port_drain(void) {
  /* Each byte is handed over as it is taken. */
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  if ((UART0_STATE & UART_STATE_RX_FULL) != 0u) {
    UART0_INTCLEAR = UART_INTCLEAR_RX;
    utvm_pipe_received((uint8_t)UART0_DATA);
  }
  if (utvm_pipe_next(&byte)) {
    send(byte);
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
