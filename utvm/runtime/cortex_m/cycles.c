/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 64-bit cycle counter. DWT's CYCCNT has 32 bits, 20 s at 216 MHz; SysTick comes by more often than that and
 * adds up what has passed (ARM DDI 0403E, C1.8.8 and B3.3). A board whose core has no CYCCNT counts in its port, or with
 * SysTick itself. With UTVM_KERNEL_TICKS, SysTick is a kernel's, which calls utvm_cycles_tick() at each of its ticks.
 */
#include "cortex_m.h"
#include "utvm.h"

#ifdef UTVM_NOBODY_COUNTS

/* Neither unit is touched: a core may have none of them. */
void utvm_cycles_tick(void) {
}

void utvm_cycles_start(void) {
}

uint64_t utvm_cycles(void) {
  return 0;
}

void utvm_alarm(uint64_t cycles) {
  (void)cycles;
}

#else

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

#elif defined(UTVM_SYSTICK_COUNTS) || defined(UTVM_BASELINE)

#define SYSTICK_CLOCK SYST_CSR_CLKSOURCE
#define SYSTICK_BITS 24u
#define SYSTICK_ROUND 0x1000000u /* 2 to the power of that */
#define COUNTS_BY_SYSTICK 1

static uint32_t rounds;
static uint64_t cost_of_a_tick;

static void start_counter(void) {
  rounds = 0u;
}

/* It counts down, and asks for its interrupt where it comes to 0. Called where that is held back. */
static uint32_t counter(void) {
  uint32_t value = SYST_CVR;
  uint32_t round = rounds;
  if ((SCB_ICSR & ICSR_PENDSTSET) != 0u) {
    value = SYST_CVR;
    round++;
  }
#ifdef UTVM_KERNEL_TICKS
  const uint32_t period = SYST_RVR + 1u;
  return (round * period) + ((value == 0u) ? 0u : (period - value));
#else
  return (round << SYSTICK_BITS) + ((0u - value) & SYSTICK_LONGEST);
#endif
}

static uint32_t in_cycles(uint32_t counts) {
#ifdef UTVM_COUNT_SCALE
  /*
   * A tick is a count's part (in units of 2^-32). Two readings are less than a tick off what passed between them: where
   * a count is more than two, the nearest whole number is the right one. No division: its time depends on what it is of.
   */
  return (uint32_t)((((uint64_t)counts * UTVM_COUNT_SCALE) + 0x80000000u) >> 32);
#else
  return counts;
#endif
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
#ifdef COUNTS_BY_SYSTICK
  rounds++;
  total -= cost_of_a_tick;
#endif
  add_up();
  if ((deadline != 0u) && (total >= deadline)) {
    deadline = 0u;
    /* Taken when this handler returns, with the frame of what takes too long. */
    SCB_ICSR = ICSR_PENDSVSET;
  }
}

#if defined(COUNTS_BY_SYSTICK) && !defined(UTVM_KERNEL_TICKS)

static __attribute__((noinline)) uint32_t cycles_with(uint32_t request, uint32_t round) {
  const uint32_t before = counter() + round;
  SCB_ICSR = request;
  __asm__ volatile("dsb\n isb" ::: "memory");
  return in_cycles(counter() - before);
}

/*
 * A tick comes often, and what its handler takes is no program's: that is measured once, and taken off. An interrupt that
 * is asked for by hand looks like a round of the counter, which it was not.
 */
static void measure_a_tick(void) {
  const uint32_t without = cycles_with(0u, 0u);
  cost_of_a_tick = (uint64_t)cycles_with(ICSR_PENDSTSET, SYSTICK_ROUND) - without;
  rounds = 0u;
}

#endif

void utvm_cycles_start(void) {
  start_counter();
  total = 0;
  last = counter();
#ifndef UTVM_KERNEL_TICKS
  SYST_RVR = SYSTICK_LONGEST;
  SYST_CVR = 0;
  SYST_CSR = SYST_CSR_ENABLE | SYST_CSR_TICKINT | SYSTICK_CLOCK;
#ifdef COUNTS_BY_SYSTICK
  measure_a_tick();
  total = 0;
  last = counter();
#endif
#endif
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

#endif
