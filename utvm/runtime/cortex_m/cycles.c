/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 64-bit cycle counter. DWT's CYCCNT has 32 bits, 20 s at 216 MHz; the SysTick interrupt is more frequent and adds
 * up the cycles (ARM DDI 0403E, C1.8.8 and B3.3). On a core without CYCCNT, the board's port counts, or SysTick itself.
 * With UTVM_KERNEL_TICKS, SysTick belongs to a kernel, which calls utvm_cycles_tick() at each tick.
 */
#include "cortex_m.h"
#include "utvm.h"

#ifdef UTVM_NOBODY_COUNTS

/* Neither unit is accessed: a core may have neither. */
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

#if defined(UTVM_MEMORY_COUNTS)

/* An emulator keeps the count in memory. */
#define SYSTICK_CLOCK SYST_CSR_CLKSOURCE

static void start_counter(void) {
}

static uint32_t counter(void) {
  return *(volatile uint32_t *)UTVM_MEMORY_COUNTS;
}

static uint32_t in_cycles(uint32_t counts) {
  return counts;
}

#elif defined(UTVM_PORT_COUNTS)

/* The reference clock, the slower one: interrupts are counted too, so there should be few. */
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
#define SYSTICK_ROUND 0x1000000u /* 2 to the power of SysTick's bits */
#define COUNTS_BY_SYSTICK 1

static uint32_t rounds;
static uint64_t cost_of_a_tick;

static void start_counter(void) {
  rounds = 0u;
}

/* SysTick counts down, and requests its interrupt at 0. Called with the interrupt masked. */
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
   * A tick is a fraction of a count (in units of 2^-32). The difference of two readings is wrong by less than a tick: if
   * a count has more than two ticks, rounding is exact. No division, because its time depends on its operands.
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
    /* Taken when this handler returns, so that its frame is that of the code that takes too long. */
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
 * Ticks are frequent, and the time of their handler is not the program's: it is measured once and subtracted. An interrupt
 * that software requests looks like a wrap of the counter, though the counter did not wrap.
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
