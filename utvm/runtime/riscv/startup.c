/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to utvm_main(), and the way of interrupts to their handlers. */
#include "core.h"
#include "riscv.h"
#include "utvm.h"

void utvm_start(void);

void utvm_start(void) {
  utvm_memory_start();
  __asm__ volatile("csrw mie, %0" ::"r"(MIE_TIMER | MIE_EXTERNAL));
  utvm_enable_interrupts();
  utvm_main();
  /* Nothing is left to do. Without interrupts nothing wakes the core but a debugger or a reset. */
  __asm__ volatile("csrw mie, zero");
  for (;;) {
    __asm__ volatile("wfi");
  }
}

void utvm_interrupt(uintptr_t cause) {
  static const int32_t lines[] = {UTVM_CONSOLE_IRQS};
  utvm_interrupts++;
  if (cause == INTERRUPT_TIMER) {
    utvm_cycles_tick();
  } else if ((cause == INTERRUPT_EXTERNAL) && (lines[0] >= 0)) {
    utvm_port_interrupt();
  } else {
    utvm_fault_record();
  }
}
