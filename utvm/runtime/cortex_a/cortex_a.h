/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The Cortex-A9 with its snoop control unit, interrupt controller and global timer (ARM DDI 0407G, DDI 0406C), and
 * the interface to a board's port.
 */
#ifndef UTVM_CORTEX_A_H
#define UTVM_CORTEX_A_H

#include "bare_metal.h"

/** The modes of the core (DDI 0406C, B1.3.1). */
#define MODE_FIQ 0x11
#define MODE_IRQ 0x12
#define MODE_SUPERVISOR 0x13
#define MODE_ABORT 0x17
#define MODE_UNDEFINED 0x1B
#define MODE_SYSTEM 0x1F

/** Exceptions are numbered as their vectors are (DDI 0406C, B1.8.1), interrupts behind them. */
#define EXCEPTION_UNDEFINED 1
#define EXCEPTION_SUPERVISOR_CALL 2
#define EXCEPTION_PREFETCH_ABORT 3
#define EXCEPTION_DATA_ABORT 4
#define EXCEPTION_FIQ 7
#define EXCEPTION_FIRST_INTERRUPT 16

/** Registers as exceptions keep them: r0 to r12, sp, lr, pc, and the program status. */
#define FRAME_SP 13
#define FRAME_PC 15
#define FRAME_STATUS 16
#define FRAME_WORDS 17

#ifndef __ASSEMBLER__
#include <stdbool.h>

/** The controller's number of the global timer's interrupt (DDI 0407G, 3.3). */
#define GLOBAL_TIMER_LINE 27u

/** A region of the board's memory; the build gives all of them. */
typedef struct {
  uint32_t address;
  uint32_t bytes;
} utvm_memory_t;

/** A part of the address space where peripherals are, in whole MiB. */
typedef struct {
  uint32_t address;
  uint32_t mebibytes;
} utvm_peripherals_t;

/**
 * Defined by a board's own port: the address ranges of peripherals. Other addresses that are not memory fault. With a
 * shared port, they are those of the UART in its numbers.
 */
extern const utvm_peripherals_t utvm_port_peripherals[];
extern const uint32_t utvm_port_peripherals_count;

/**
 * Defined by a board's own port: convert ticks of the global timer to core cycles, and back. With a shared port, two of
 * its numbers give the ratio.
 */
uint64_t utvm_port_ticks(uint64_t cycles);
uint64_t utvm_port_cycles_of_ticks(uint64_t ticks);

/** Where the registers of the snoop control unit, interrupt controller and timers begin (DDI 0407G, 4.3.24). */
static inline uintptr_t utvm_private_base(void) {
  uintptr_t base;
  __asm__ volatile("mrc p15, 4, %0, c15, c0, 0" : "=r"(base));
  return base;
}

/** Turn the memory management unit and the caches on. Variables have their first values. */
void utvm_memory_map(void);

#ifdef UTVM_ACCELERATOR
/** Defined by the board's port: the physical address to map for the accelerator's registers, in whole MiB. */
uint32_t utvm_port_accelerator(uint32_t address);
#endif

/** Begin to take interrupts: all lines are off. */
void utvm_interrupts_start(void);

/** The handler of all interrupts. Returns the exception number if the interrupt is a fault, else 0. */
uint32_t utvm_interrupt(void);

/** The deadline has passed: clear its interrupt. */
void utvm_alarm_stop(void);

/** Write utvm_fault and stop. */
void utvm_fault_record(const uint32_t *frame, uint32_t exception);

#endif /* __ASSEMBLER__ */
#endif
