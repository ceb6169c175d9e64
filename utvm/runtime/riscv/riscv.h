/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Shared by the files of this architecture. Control and status registers, traps and physical memory protection: RISC-V
 * Instruction Set Manual, Volume II, Privileged Architecture, 20211203, chapters 2 and 3.
 */
#ifndef UTVM_RISCV_H
#define UTVM_RISCV_H

#include "bare_metal.h"

/** mstatus: interrupts of machine mode, and the floating-point unit before it was first used. */
#define MSTATUS_MIE 0x8
#define MSTATUS_FS_INITIAL 0x2000

/** mie: timer and external interrupts. */
#define MIE_TIMER 0x80
#define MIE_EXTERNAL 0x800

/** pmpcfg: addresses from the entry before up to this one; no access, not even in machine mode. */
#define PMPCFG_FORBIDDEN_UP_TO_HERE 0x88

/** Guard bytes below the stack: those reserved by the linker script if other memory is below. */
#ifdef UTVM_STACK_GUARD
#define UTVM_GUARD_BYTES 256
#else
#define UTVM_GUARD_BYTES 4096
#endif

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stdint.h>

/** Causes of interrupts, without the highest bit of mcause. */
#define INTERRUPT_TIMER 7u
#define INTERRUPT_EXTERNAL 11u

/** x1 to x31 on entry to the trap handler, and mepc in the place of x0. */
extern uintptr_t utvm_trap_registers[32];

/** Handle an interrupt; called by the trap handler, on its own stack. */
void utvm_interrupt(uintptr_t cause);

/** Write utvm_fault and stop. Called on the trap handler's stack; mcause is unchanged. */
void utvm_fault_record(void);

/** Handle the timer's interrupt. */
void utvm_cycles_tick(void);

/** Whether a fault is being reported, which is not interrupted. */
extern volatile bool utvm_in_fault;

/**
 * For a board's own port to define: the address of the core-local interruptor, whose timer it is (its layout is that of
 * SiFive: mtimecmp at 0x4000, mtime at 0xBFF8), and how many instructions go by in one tick of it. With a shared
 * port, they are among its numbers.
 */
extern const uintptr_t utvm_port_clint;
extern const uint32_t utvm_port_cycles_a_tick;

#endif /* __ASSEMBLER__ */
#endif
