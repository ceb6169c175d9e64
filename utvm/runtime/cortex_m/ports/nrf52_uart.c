/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with an nRF52. Its crystal is started, for the oscillator of a reset is too far off for a serial line and
 * for a counter. Console on the UART, a byte an interrupt (nRF52840 Product Specification 1.7, 5.4, 6.9 and 6.33): the
 * UARTE at the same address hands over whole buffers, which a console that waits for single bytes has no use for.
 */
#include <stdbool.h>

#include "cortex_m.h"
#include "utvm.h"

#define CLOCK_TASKS_HFCLKSTART UTVM_REGISTER(0x40000000u)
#define CLOCK_EVENTS_HFCLKSTARTED UTVM_REGISTER(0x40000100u)
#define GPIO_OUTSET UTVM_REGISTER(0x50000508u)
#define GPIO_PIN_CNF(pin) UTVM_REGISTER(0x50000700u + (4u * (pin)))
#define UART_TASKS_STARTRX UTVM_REGISTER(UTVM_PORT_UART)
#define UART_TASKS_STARTTX UTVM_REGISTER(UTVM_PORT_UART + 0x8u)
#define UART_EVENTS_RXDRDY UTVM_REGISTER(UTVM_PORT_UART + 0x108u)
#define UART_EVENTS_TXDRDY UTVM_REGISTER(UTVM_PORT_UART + 0x11Cu)
#define UART_INTENSET UTVM_REGISTER(UTVM_PORT_UART + 0x304u)
#define UART_ENABLE UTVM_REGISTER(UTVM_PORT_UART + 0x500u)
#define UART_PSEL_TXD UTVM_REGISTER(UTVM_PORT_UART + 0x50Cu)
#define UART_PSEL_RXD UTVM_REGISTER(UTVM_PORT_UART + 0x514u)
#define UART_RXD UTVM_REGISTER(UTVM_PORT_UART + 0x518u)
#define UART_TXD UTVM_REGISTER(UTVM_PORT_UART + 0x51Cu)
#define UART_BAUDRATE UTVM_REGISTER(UTVM_PORT_UART + 0x524u)

#define GPIO_PIN_CNF_OUTPUT 3u /* and not connected as an input */
#define UART_INTEN_RXDRDY (1u << 2)
#define UART_INTEN_TXDRDY (1u << 7)
#define UART_ENABLED 4u
/* In 2 to the power of 32 parts of 16 MHz; the lowest 12 bits are not looked at. */
#define BAUDRATE ((uint32_t)((((uint64_t)UTVM_CONSOLE_BAUD << 32) / 16000000u) + 0x800u) & 0xFFFFF000u)

static bool sending; /* a byte is under way, and its end will interrupt */

void utvm_port_init(void) {
  CLOCK_TASKS_HFCLKSTART = 1u;
  while (CLOCK_EVENTS_HFCLKSTARTED == 0u) {
  }
  GPIO_OUTSET = 1u << UTVM_PORT_PIN_TXD;
  GPIO_PIN_CNF(UTVM_PORT_PIN_TXD) = GPIO_PIN_CNF_OUTPUT;
  GPIO_PIN_CNF(UTVM_PORT_PIN_RXD) = 0u;
  UART_PSEL_TXD = UTVM_PORT_PIN_TXD;
  UART_PSEL_RXD = UTVM_PORT_PIN_RXD;
  UART_BAUDRATE = BAUDRATE;
  UART_ENABLE = UART_ENABLED;
  UART_TASKS_STARTTX = 1u;
  UART_TASKS_STARTRX = 1u;
}

static void end_byte(void) {
  while (UART_EVENTS_TXDRDY == 0u) {
  }
  UART_EVENTS_TXDRDY = 0u;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  utvm_port_drain();
  for (index = 0; index < size; index++) {
    UART_TXD = (uint8_t)text[index];
    end_byte();
  }
}

void utvm_port_listen(void) {
  NVIC_ISER(UTVM_PORT_LINE) = 1u << (UTVM_PORT_LINE % 32u);
  UART_INTENSET = UART_INTEN_RXDRDY | UART_INTEN_TXDRDY;
}

void utvm_port_send(void) {
  uint8_t byte;
  if (!sending && utvm_pipe_next(&byte)) {
    sending = true;
    UART_TXD = byte;
  }
}

void utvm_port_drain(void) {
  if (sending) {
    end_byte();
    sending = false;
  }
}

void utvm_port_interrupt(void) {
  utvm_interrupts++;
  if (UART_EVENTS_RXDRDY != 0u) {
    UART_EVENTS_RXDRDY = 0u; /* before the byte is taken, which lets the next one come up */
    utvm_pipe_received((uint8_t)UART_RXD);
  }
  if (UART_EVENTS_TXDRDY != 0u) {
    UART_EVENTS_TXDRDY = 0u;
    (void)UART_EVENTS_TXDRDY; /* it has arrived there before the handler ends */
    sending = false;
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
