/* SPDX-License-Identifier: Apache-2.0 */
/* Stores a fault for the host (RISC-V Instruction Set Manual, Volume II, 3.1.14 to 3.1.16). */
#include <stdbool.h>

#include "riscv.h"
#include "utvm.h"

#define REGISTERS 32u
#define STACK_POINTER 2u
#define PROGRAM_COUNTER 32u /* not numbered by DWARF: the number after the others */
#define INTERRUPT_BIT 31u

extern uint8_t _utvm_stack_start[], _utvm_stack_end[];

uintptr_t utvm_trap_registers[REGISTERS];
volatile bool utvm_in_fault;

void utvm_fault_record(void) {
  uintptr_t cause;
  uintptr_t value;
  uintptr_t status;
  uint32_t number;
  __asm__ volatile("csrr %0, mcause" : "=r"(cause));
  __asm__ volatile("csrr %0, mtval" : "=r"(value));
  __asm__ volatile("csrr %0, mstatus" : "=r"(status));
  utvm_in_fault = true;
  utvm_fault_begin();
  /* The highest bit, whatever the register's width, marks an interrupt. */
  utvm_fault.exception = (uint32_t)(cause & INT32_MAX) | ((uint32_t)((intptr_t)cause < 0) << INTERRUPT_BIT);
  utvm_fault.status[0] = (uint32_t)value;
  utvm_fault.status[1] = (uint32_t)((uint64_t)value >> 32);
  utvm_fault.status[2] = (uint32_t)status;
  for (number = 1u; number < REGISTERS; number++) {
    utvm_fault.registers[number] = utvm_trap_registers[number];
  }
  utvm_fault.registers[PROGRAM_COUNTER] = utvm_trap_registers[0];
  utvm_fault.registers_valid = 1u;
  /* After a stack overflow, store the stack from its start: a read below would fault. */
  const uintptr_t top = (uintptr_t)_utvm_stack_end;
  const uintptr_t bottom = (uintptr_t)_utvm_stack_start;
  const uintptr_t pointer = utvm_trap_registers[STACK_POINTER];
  const uintptr_t stack = ((pointer >= bottom) && (pointer <= top)) ? pointer : bottom;
  utvm_fault_keep_stack(stack);
  utvm_fault_complete();
}
