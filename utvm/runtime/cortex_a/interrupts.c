/* SPDX-License-Identifier: Apache-2.0 */
/* The interrupt controller (ARM IHI 0048B, chapter 4; its place: DDI 0407G, 1.5). */
#include <stdbool.h>

#include "cortex_a.h"
#include "utvm.h"

#define CONTROLLER_CPU 0x100u
#define CONTROLLER_DISTRIBUTOR 0x1000u
#define GICC_CTLR 0x00u
#define GICC_PMR 0x04u
#define GICC_IAR 0x0Cu
#define GICC_EOIR 0x10u
#define GICD_CTLR 0x000u
#define GICD_ISENABLER 0x100u
#define GICD_ICENABLER 0x180u
#define GICD_ICPENDR 0x280u
#define GICD_ITARGETSR 0x800u

#define ALL_PRIORITIES 0xFFu
#define LINE_MASK 0x3FFu
#define NO_LINE 1020u /* and those above: no pending interrupt */
#define FIRST_SHARED_LINE 32u
#define FIRST_CORE 1u
#define LINES_A_WORD 32u

static volatile uint32_t *cpu(uint32_t offset) {
  return (volatile uint32_t *)(utvm_private_base() + CONTROLLER_CPU + offset);
}

static volatile uint32_t *distributor(uint32_t offset) {
  return (volatile uint32_t *)(utvm_private_base() + CONTROLLER_DISTRIBUTOR + offset);
}

void utvm_interrupts_start(void) {
  uint32_t first;
  *distributor(GICD_CTLR) = 0u;
  for (first = 0u; first < UTVM_INTERRUPTS; first += LINES_A_WORD) {
    *distributor(GICD_ICENABLER + (first / 8u)) = 0xFFFFFFFFu;
    *distributor(GICD_ICPENDR + (first / 8u)) = 0xFFFFFFFFu;
  }
  /* End an interrupt that was active when another program was stopped. */
  for (first = 0u; first < UTVM_INTERRUPTS; first++) {
    const uint32_t line = *cpu(GICC_IAR) & LINE_MASK;
    if (line >= NO_LINE) {
      break;
    }
    *cpu(GICC_EOIR) = line;
  }
  *cpu(GICC_PMR) = ALL_PRIORITIES;
  *cpu(GICC_CTLR) = 1u;
  *distributor(GICD_CTLR) = 1u;
}

void utvm_interrupts_from(uint32_t line) {
  if (line >= FIRST_SHARED_LINE) {
    ((volatile uint8_t *)distributor(GICD_ITARGETSR))[line] = FIRST_CORE;
  }
  *distributor(GICD_ISENABLER + (4u * (line / LINES_A_WORD))) = (uint32_t)1 << (line % LINES_A_WORD);
}

static bool is_of_console(uint32_t line) {
  static const int32_t lines[] = {UTVM_CONSOLE_IRQS};
  bool found = false;
  uint32_t number;
  for (number = 0u; number < ((uint32_t)sizeof lines / (uint32_t)sizeof lines[0]); number++) {
    found = found || ((int32_t)line == lines[number]);
  }
  return found;
}

uint32_t utvm_interrupt(void) {
  const uint32_t acknowledged = *cpu(GICC_IAR);
  const uint32_t line = acknowledged & LINE_MASK;
  uint32_t fault = 0u;
  if (line < NO_LINE) {
    if (is_of_console(line)) {
      utvm_port_interrupt();
    } else {
      utvm_alarm_stop();
      fault = EXCEPTION_FIRST_INTERRUPT + line;
    }
    *cpu(GICC_EOIR) = acknowledged;
  }
  return fault;
}
