/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 64-bit cycle counter. DWT's CYCCNT has 32 bits, 20 s at 216 MHz; SysTick comes by more often than that and
 * adds up what has passed (ARM DDI 0403E, C1.8.8 and B3.3). A board whose core has no CYCCNT counts in its port.
 */
#include "cortex_m.h"
#include "utvm.h"

#define SYSTICK_LONGEST 0x00FFFFFFu

static uint64_t total;
static uint32_t last;
static uint64_t deadline; /* 0: none */

#ifdef UTVM_PORT_COUNTS

/* The reference clock, which is the slower one: what an interrupt takes is counted too, so they shall be few. */
#define SYSTICK_CLOCK 0u

static void start_counter(void) {
  utvm_port_start_counter();
}

static uint32_t counter(void) {
  return utvm_port_counter();
}

static uint32_t in_cycles(uint32_t counts) {
  return utvm_port_cycles(counts);
}

#else

#define SYSTICK_CLOCK SYST_CSR_CLKSOURCE

static void start_counter(void) {
  DEMCR |= DEMCR_TRCENA;
  DWT_LAR = DWT_LAR_KEY; /* locked after reset on the Cortex-M7 */
  DWT_CTRL |= DWT_CTRL_CYCCNTENA;
}

static uint32_t counter(void) {
  return DWT_CYCCNT;
}

static uint32_t in_cycles(uint32_t counts) {
  return counts;
}

#endif

static void add_up(void) {
  const uint32_t now = counter();
  const uint32_t passed = in_cycles(now - last);
  total += passed;
  last = now;
}

void utvm_cycles_tick(void) {
  utvm_interrupts++;
  add_up();
  if ((deadline != 0u) && (total >= deadline)) {
    deadline = 0u;
    /* Taken when this handler returns, with the frame of what takes too long. */
    SCB_ICSR = ICSR_PENDSVSET;
  }
}

void utvm_cycles_start(void) {
  start_counter();
  total = 0;
  last = counter();
  SYST_RVR = SYSTICK_LONGEST;
  SYST_CVR = 0;
  SYST_CSR = SYST_CSR_ENABLE | SYST_CSR_TICKINT | SYSTICK_CLOCK;
}

static uint32_t mask_interrupts(void) {
  uint32_t masked;
  __asm__ volatile("mrs %0, primask\n cpsid i" : "=r"(masked)::"memory");
  return masked;
}

static void unmask_interrupts(uint32_t masked) {
  __asm__ volatile("msr primask, %0" ::"r"(masked) : "memory");
}

uint64_t utvm_cycles(void) {
  const uint32_t masked = mask_interrupts();
  add_up();
  const uint64_t now = total;
  unmask_interrupts(masked);
  return now;
}

void utvm_alarm(uint64_t cycles) {
  const uint64_t at = (cycles == 0u) ? 0u : (utvm_cycles() + cycles);
  const uint32_t masked = mask_interrupts();
  deadline = at;
  unmask_interrupts(masked);
}
