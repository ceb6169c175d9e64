/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of the SmartFusion2's subsystem, with the console on MMUART_0, which has the registers of a 16550 (UG0331, MMUART).
 * Clocks are those that the fabric has set up: 142 MHz, half of it for APB_0. The counter is SysTick.
 */
#include "cortex_m.h"
#include "utvm.h"

#define SOFT_RESET_CR UTVM_REGISTER(0x40038048u)
#define UART_DATA UTVM_REGISTER(0x40000000u)
#define UART_IER UTVM_REGISTER(0x40000004u)
#define UART_FCR UTVM_REGISTER(0x40000008u)
#define UART_LCR UTVM_REGISTER(0x4000000Cu)
#define UART_LSR UTVM_REGISTER(0x40000014u)
#define NVIC_ISPR UTVM_REGISTER(0xE000E200u)

#define LINE 10u
#define LINE_BIT (1u << LINE)
#define SOFT_RESET_MMUART_0 (1u << 7)
#define BUS_HZ 71000000u
#define DIVISOR ((BUS_HZ + (8u * UTVM_CONSOLE_BAUD)) / (16u * UTVM_CONSOLE_BAUD))
#define IER_RECEIVED (1u << 0)
#define LCR_EIGHT_BITS 3u
#define LCR_DIVISOR (1u << 7)
#define LSR_RECEIVED (1u << 0)
#define LSR_MAY_SEND (1u << 5)
#define LSR_SENT (1u << 6)

void utvm_port_init(void) {
  SOFT_RESET_CR &= ~SOFT_RESET_MMUART_0;
  UART_LCR = LCR_DIVISOR | LCR_EIGHT_BITS;
  UART_DATA = DIVISOR & 0xFFu;
  UART_IER = DIVISOR >> 8;
  UART_LCR = LCR_EIGHT_BITS;
  UART_IER = 0u;
  UART_FCR = 1u;
}

static void send(uint8_t byte) {
  while ((UART_LSR & LSR_MAY_SEND) == 0u) {
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
  NVIC_ISER(LINE) = LINE_BIT;
  UART_IER = IER_RECEIVED;
}

void utvm_port_send(void) {
  NVIC_ISPR = LINE_BIT;
}

void utvm_port_drain(void) {
  while ((UART_LSR & LSR_SENT) == 0u) {
  }
}

void utvm_port_interrupt(void) {
  uint8_t byte;
  utvm_interrupts++;
  while ((UART_LSR & LSR_RECEIVED) != 0u) {
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
