/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port of Spike's machine, which QEMU's "virt" is in what is used here: a UART of the kind 16550 (Texas Instruments
 * TL16C550C, SLLS177), the PLIC (RISC-V Platform-Level Interrupt Controller Specification, 1.0.0) and the CLINT, at the
 * same addresses (Spike: riscv/platform.h; QEMU: hw/riscv/virt.c). The UART is on another line of the PLIC in each.
 */
#include "riscv.h"
#include "utvm.h"

#define UART_BASE 0x10000000u
#define UART_REGISTER(number) (*(volatile uint8_t *)(UART_BASE + (number)))
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

/* Of the first core, in machine mode: context 0. */
#define PLIC_BASE 0x0C000000u
#define PLIC_PRIORITY(line) UTVM_REGISTER(PLIC_BASE + (4u * (line)))
#define PLIC_ENABLE UTVM_REGISTER(PLIC_BASE + 0x2000u)
#define PLIC_THRESHOLD UTVM_REGISTER(PLIC_BASE + 0x200000u)
#define PLIC_CLAIM UTVM_REGISTER(PLIC_BASE + 0x200004u)

const uintptr_t utvm_port_clint = 0x02000000u;
const uint32_t utvm_port_cycles_a_tick = 100u;

void utvm_port_init(void) {
  /* The clock's divider stays as it is: no time passes on this line. */
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
  static const int32_t lines[] = {UTVM_CONSOLE_IRQS};
  uint32_t index;
  PLIC_THRESHOLD = 0u;
  for (index = 0u; index < (sizeof lines / sizeof lines[0]); index++) {
    PLIC_PRIORITY((uint32_t)lines[index]) = 1u;
    PLIC_ENABLE |= 1u << (uint32_t)lines[index];
  }
  UART_INTERRUPTS = UART_INTERRUPT_RECEIVED;
}

void utvm_port_send(void) {
  /* It asks at once: there is nothing to send yet. */
  UART_INTERRUPTS = UART_INTERRUPT_RECEIVED | UART_INTERRUPT_EMPTY;
}

void utvm_port_drain(void) {
  /* Each byte is handed over as it is taken. */
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
  const uint32_t line = PLIC_CLAIM;
  while ((UART_STATE & UART_STATE_RECEIVED) != 0u) {
    utvm_pipe_received(UART_DATA);
  }
  if (((UART_INTERRUPTS & UART_INTERRUPT_EMPTY) != 0u) && ((UART_STATE & UART_STATE_EMPTY) != 0u)) {
    send_next();
  }
  PLIC_CLAIM = line;
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}
