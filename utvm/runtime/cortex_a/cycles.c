/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit cycle counter and the watchdog: the global timer and its comparator (ARM DDI 0407G, 4.3 and 4.4). */
#include "cortex_a.h"
#include "utvm.h"

#define GLOBAL_TIMER 0x200u
#define TIMER_LOW 0x00u
#define TIMER_HIGH 0x04u
#define TIMER_CONTROL 0x08u
#define TIMER_STATUS 0x0Cu
#define TIMER_COMPARE_LOW 0x10u
#define TIMER_COMPARE_HIGH 0x14u

#define CONTROL_ENABLE (1u << 0)
#define CONTROL_COMPARE (1u << 1)
#define CONTROL_INTERRUPT (1u << 2)

#ifdef UTVM_PORT_TICKS

/* An emulator's instruction takes more than two ticks, so rounding to the nearest whole number is exact. */
uint64_t utvm_port_cycles_of_ticks(uint64_t ticks) {
  return ((UTVM_PORT_CYCLES * ticks) + (UTVM_PORT_TICKS / 2u)) / UTVM_PORT_TICKS;
}

uint64_t utvm_port_ticks(uint64_t cycles) {
  return (UTVM_PORT_TICKS * cycles) / UTVM_PORT_CYCLES;
}

#endif

static uint64_t start;

static volatile uint32_t *timer(uint32_t offset) {
  return (volatile uint32_t *)(utvm_private_base() + GLOBAL_TIMER + offset);
}

static uint64_t ticks(void) {
  uint32_t high;
  uint32_t low;
  do {
    high = *timer(TIMER_HIGH);
    low = *timer(TIMER_LOW);
  } while (high != *timer(TIMER_HIGH));
  return ((uint64_t)high << 32) | low;
}

void utvm_cycles_start(void) {
  /* No prescaler. A running timer is not restarted: both cores share it. */
  *timer(TIMER_CONTROL) = CONTROL_ENABLE;
  *timer(TIMER_STATUS) = 1u;
  utvm_interrupts_from(GLOBAL_TIMER_LINE);
  start = ticks();
}

uint64_t utvm_cycles(void) {
  return utvm_port_cycles_of_ticks(ticks() - start);
}

void utvm_alarm_stop(void) {
  *timer(TIMER_CONTROL) = CONTROL_ENABLE;
  *timer(TIMER_STATUS) = 1u;
}

void utvm_alarm(uint64_t cycles) {
  /* The comparator is off while it changes: half of a new deadline may be in the past. */
  utvm_alarm_stop();
  if (cycles != 0u) {
    const uint64_t at = ticks() + utvm_port_ticks(cycles);
    *timer(TIMER_COMPARE_LOW) = (uint32_t)at;
    *timer(TIMER_COMPARE_HIGH) = (uint32_t)(at >> 32);
    *timer(TIMER_CONTROL) = CONTROL_ENABLE | CONTROL_COMPARE | CONTROL_INTERRUPT;
  }
}
