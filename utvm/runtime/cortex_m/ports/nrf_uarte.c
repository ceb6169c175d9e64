/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of boards with an nRF52 or nRF53. It starts the crystal, because the oscillator after a reset is too inexact for a
 * serial line and a counter. Console on the UARTE, which transfers buffers: here of one byte, each with an interrupt
 * (nRF52840 Product Specification 1.7, 5.4, 6.9 and 6.34; nRF5340 Product Specification 1.3, the chapters of the same names).
 *
 * Newer chips lock their debug port at each reset until software writes a key (CTRL-AP, "Access port protection").
 */
#include <stdbool.h>

#include "cortex_m.h"
#include "utvm.h"

#define CLOCK_TASKS_HFCLKSTART UTVM_REGISTER(UTVM_PORT_CLOCK)
#define CLOCK_EVENTS_HFCLKSTARTED UTVM_REGISTER(UTVM_PORT_CLOCK + 0x100u)
#define GPIO_OUTSET UTVM_REGISTER(UTVM_PORT_PINS + 0x8u)
#define GPIO_PIN_CNF(pin) UTVM_REGISTER(UTVM_PORT_PINS + 0x200u + (4u * (pin)))
#define UARTE_TASKS_STARTRX UTVM_REGISTER(UTVM_PORT_UARTE)
#define UARTE_TASKS_STARTTX UTVM_REGISTER(UTVM_PORT_UARTE + 0x8u)
#define UARTE_EVENTS_ENDRX UTVM_REGISTER(UTVM_PORT_UARTE + 0x110u)
#define UARTE_EVENTS_ENDTX UTVM_REGISTER(UTVM_PORT_UARTE + 0x120u)
#define UARTE_INTENSET UTVM_REGISTER(UTVM_PORT_UARTE + 0x304u)
#define UARTE_ENABLE UTVM_REGISTER(UTVM_PORT_UARTE + 0x500u)
#define UARTE_PSEL_TXD UTVM_REGISTER(UTVM_PORT_UARTE + 0x50Cu)
#define UARTE_PSEL_RXD UTVM_REGISTER(UTVM_PORT_UARTE + 0x514u)
#define UARTE_BAUDRATE UTVM_REGISTER(UTVM_PORT_UARTE + 0x524u)
#define UARTE_RXD_PTR UTVM_REGISTER(UTVM_PORT_UARTE + 0x534u)
#define UARTE_RXD_MAXCNT UTVM_REGISTER(UTVM_PORT_UARTE + 0x538u)
#define UARTE_TXD_PTR UTVM_REGISTER(UTVM_PORT_UARTE + 0x544u)
#define UARTE_TXD_MAXCNT UTVM_REGISTER(UTVM_PORT_UARTE + 0x548u)

#define GPIO_PIN_CNF_OUTPUT 3u /* and not connected as an input */
#define UARTE_INTEN_ENDRX (1u << 4)
#define UARTE_INTEN_ENDTX (1u << 8)
#define UARTE_ENABLED 8u
/* In units of 16 MHz / 2^32; the lowest 12 bits are ignored. */
#define BAUDRATE ((uint32_t)((((uint64_t)UTVM_CONSOLE_BAUD << 32) / 16000000u) + 0x800u) & 0xFFFFF000u)

/* Buffers are in RAM: the UARTE cannot read flash. */
static volatile uint8_t outgoing, incoming;
static bool sending; /* a byte is being sent, and its end will interrupt */

void utvm_port_init(void) {
  UTVM_REGISTER(UTVM_PORT_PROTECTION) = UTVM_PORT_PROTECTION_KEY;
#ifdef UTVM_PORT_SECURE_PROTECTION
  UTVM_REGISTER(UTVM_PORT_SECURE_PROTECTION) = UTVM_PORT_PROTECTION_KEY;
#endif
  CLOCK_TASKS_HFCLKSTART = 1u;
  while (CLOCK_EVENTS_HFCLKSTARTED == 0u) {
  }
  GPIO_OUTSET = 1u << UTVM_PORT_PIN_TXD;
  GPIO_PIN_CNF(UTVM_PORT_PIN_TXD) = GPIO_PIN_CNF_OUTPUT;
  GPIO_PIN_CNF(UTVM_PORT_PIN_RXD) = 0u;
  UARTE_PSEL_TXD = UTVM_PORT_PIN_TXD;
  UARTE_PSEL_RXD = UTVM_PORT_PIN_RXD;
  UARTE_BAUDRATE = BAUDRATE;
  UARTE_ENABLE = UARTE_ENABLED;
  UARTE_TXD_PTR = (uint32_t)(uintptr_t)&outgoing;
  UARTE_TXD_MAXCNT = 1u;
  UARTE_RXD_PTR = (uint32_t)(uintptr_t)&incoming;
  UARTE_RXD_MAXCNT = 1u;
  UARTE_TASKS_STARTRX = 1u;
}

static void begin_byte(uint8_t byte) {
  outgoing = byte;
  UARTE_TASKS_STARTTX = 1u;
}

static void end_byte(void) {
  while (UARTE_EVENTS_ENDTX == 0u) {
  }
  UARTE_EVENTS_ENDTX = 0u;
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t index;
  utvm_port_drain();
  for (index = 0; index < size; index++) {
    begin_byte((uint8_t)text[index]);
    end_byte();
  }
}

void utvm_port_listen(void) {
  NVIC_ISER(UTVM_PORT_LINE) = 1u << (UTVM_PORT_LINE % 32u);
  UARTE_INTENSET = UARTE_INTEN_ENDRX | UARTE_INTEN_ENDTX;
}

void utvm_port_send(void) {
  uint8_t byte;
  if (!sending && utvm_pipe_next(&byte)) {
    sending = true;
    begin_byte(byte);
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
  if (UARTE_EVENTS_ENDRX != 0u) {
    uint8_t byte = incoming;
    UARTE_EVENTS_ENDRX = 0u;
    UARTE_TASKS_STARTRX = 1u; /* bytes received meanwhile are in the UARTE's queue */
    utvm_pipe_received(byte);
  }
  if (UARTE_EVENTS_ENDTX != 0u) {
    UARTE_EVENTS_ENDTX = 0u;
    (void)UARTE_EVENTS_ENDTX; /* read back, so that the write completes before the handler ends */
    sending = false;
    utvm_port_send();
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
