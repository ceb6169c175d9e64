/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with Arm's UART PL011 (DDI 0183G, chapter 3), with an interrupt for each byte. The board's data gives its
 * address and its clock (bus_hz): without a clock, the divider keeps its reset value, as emulators allow. Other clocks and
 * pins keep their reset state, too.
 */
#include "bare_metal.h"
#include "utvm.h"

#define UART_DATA UTVM_REGISTER(UTVM_PORT_UART)
#define UART_STATE UTVM_REGISTER(UTVM_PORT_UART + 0x18u)
#define UART_DIVIDER UTVM_REGISTER(UTVM_PORT_UART + 0x24u)
#define UART_DIVIDER_64THS UTVM_REGISTER(UTVM_PORT_UART + 0x28u)
#define UART_FORMAT UTVM_REGISTER(UTVM_PORT_UART + 0x2Cu)
#define UART_CONTROL UTVM_REGISTER(UTVM_PORT_UART + 0x30u)
#define UART_INTERRUPTS UTVM_REGISTER(UTVM_PORT_UART + 0x38u)
#define UART_CLEAR UTVM_REGISTER(UTVM_PORT_UART + 0x44u)

#define UART_STATE_NOTHING_RECEIVED (1u << 4)
#define UART_STATE_FULL (1u << 5)
#define UART_FORMAT_8N1 0x60u /* without queues: each byte interrupts */
#define UART_CONTROL_BOTH_ON 0x301u
#define UART_INTERRUPT_RECEIVED (1u << 4)
#define UART_INTERRUPT_SENT (1u << 5)

void utvm_port_init(void) {
  UART_CONTROL = 0u;
#ifdef UTVM_PORT_BUS_HZ
  const uint32_t divider = ((4u * UTVM_PORT_BUS_HZ) + (UTVM_CONSOLE_BAUD / 2u)) / UTVM_CONSOLE_BAUD;
  UART_DIVIDER = divider / 64u;
  UART_DIVIDER_64THS = divider % 64u;
#endif
  UART_FORMAT = UART_FORMAT_8N1;
  UART_CONTROL = UART_CONTROL_BOTH_ON;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  for (index = 0; index < size; index++) {
    while ((UART_STATE & UART_STATE_FULL) != 0u) {
    }
    UART_DATA = (uint8_t)text[index];
  }
}

void utvm_port_listen(void) {
  utvm_console_lines_on();
  UART_INTERRUPTS = UART_INTERRUPT_RECEIVED;
}

/* Send one byte; its end interrupts. While the UART is busy, the end of the byte before does. */
void utvm_port_send(void) {
  uint8_t byte;
  if (((UART_STATE & UART_STATE_FULL) == 0u) && utvm_pipe_next(&byte)) {
    UART_CLEAR = UART_INTERRUPT_SENT;
    UART_INTERRUPTS = UART_INTERRUPT_RECEIVED | UART_INTERRUPT_SENT;
    UART_DATA = byte;
  }
}

void utvm_port_drain(void) {
  /* Nothing is queued here. */
}

void utvm_port_interrupt(void) {
  utvm_interrupts++;
  UART_CLEAR = UART_INTERRUPT_SENT;
  while ((UART_STATE & UART_STATE_NOTHING_RECEIVED) == 0u) {
    utvm_pipe_received((uint8_t)UART_DATA);
  }
  utvm_port_send();
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
