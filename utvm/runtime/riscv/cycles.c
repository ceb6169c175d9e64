/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 64-bit count of instructions, which is minstret; and the timer, which ends runs that take too long (RISC-V Instruction
 * Set Manual, Volume II, 3.1.10 and 3.2.1).
 */
#include "riscv.h"
#include "utvm.h"

#define MTIMECMP_OFFSET 0x4000u
#define MTIME_OFFSET 0xBFF8u
#define HALF 4u /* bytes */
#define NEVER 0xFFFFFFFFu

#ifdef UTVM_PORT_CLINT
const uintptr_t utvm_port_clint = UTVM_PORT_CLINT;
const uint32_t utvm_port_cycles_a_tick = UTVM_PORT_TICK;
#endif

static uint64_t deadline; /* 0: none */

static volatile uint32_t *timer_half(uintptr_t offset) {
  return (volatile uint32_t *)(utvm_port_clint + offset);
}

/* The low half may wrap between two readings: then the high half has changed. */
static uint64_t timer(void) {
  uint32_t high;
  uint32_t low;
  do {
    high = *timer_half(MTIME_OFFSET + HALF);
    low = *timer_half(MTIME_OFFSET);
  } while (high != *timer_half(MTIME_OFFSET + HALF));
  return ((uint64_t)high << 32) | low;
}

/* In this order, no intermediate value is in the past. */
static void wake_at(uint64_t time) {
  *timer_half(MTIMECMP_OFFSET + HALF) = NEVER;
  *timer_half(MTIMECMP_OFFSET) = (uint32_t)time;
  *timer_half(MTIMECMP_OFFSET + HALF) = (uint32_t)(time >> 32);
}

static void wake_after(uint64_t cycles) {
  wake_at(timer() + (cycles / utvm_port_cycles_a_tick) + 1u);
}

void utvm_cycles_tick(void) {
  const uint64_t now = utvm_cycles();
  if (deadline == 0u) {
    wake_at(UINT64_MAX);
  } else if (now < deadline) {
    wake_after(deadline - now);
  } else {
    deadline = 0u;
    wake_at(UINT64_MAX);
    /* The registers are those of the code that takes too long. */
    utvm_fault_record();
  }
}

void utvm_cycles_start(void) {
  /* minstret counts since reset; only differences are used. */
  wake_at(UINT64_MAX);
}

uint64_t utvm_cycles(void) {
#if __riscv_xlen == 64
  uint64_t count;
  __asm__ volatile("csrr %0, minstret" : "=r"(count)::"memory");
  return count;
#else
  uint32_t high;
  uint32_t low;
  uint32_t again;
  do {
    __asm__ volatile("csrr %0, minstreth\n csrr %1, minstret\n csrr %2, minstreth"
                     : "=&r"(high), "=&r"(low), "=&r"(again)::"memory");
  } while (high != again);
  return ((uint64_t)high << 32) | low;
#endif
}

void utvm_alarm(uint64_t cycles) {
  /* An interrupt in between sees either no deadline or a complete one. */
  wake_at(UINT64_MAX);
  deadline = (cycles == 0u) ? 0u : (utvm_cycles() + cycles);
  if (cycles != 0u) {
    wake_after(cycles);
  }
}
