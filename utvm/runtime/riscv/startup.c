/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to utvm_main(), and the dispatch of interrupts. */
#include "core.h"
#include "riscv.h"
#include "utvm.h"

void utvm_start(void);

void utvm_start(void) {
  utvm_memory_start();
  __asm__ volatile("csrw mie, %0" ::"r"(MIE_TIMER | MIE_EXTERNAL));
  utvm_enable_interrupts();
  utvm_main();
  /* Nothing else to do. Without interrupts, only a debugger or a reset wakes the core. */
  __asm__ volatile("csrw mie, zero");
  for (;;) {
    __asm__ volatile("wfi");
  }
}

#ifdef UTVM_PORT_PLIC

/* Registers of the first core in machine mode, context 0 (Platform-Level Interrupt Controller Specification, 1.0.0). */
#define PLIC_PRIORITY(line) UTVM_REGISTER(UTVM_PORT_PLIC + (4u * (line)))
#define PLIC_ENABLE(line) UTVM_REGISTER(UTVM_PORT_PLIC + 0x2000u + (4u * ((line) / 32u)))
#define PLIC_THRESHOLD UTVM_REGISTER(UTVM_PORT_PLIC + 0x200000u)
#define PLIC_CLAIM UTVM_REGISTER(UTVM_PORT_PLIC + 0x200004u)

void utvm_interrupts_from(uint32_t line) {
  PLIC_THRESHOLD = 0u;
  PLIC_PRIORITY(line) = 1u;
  PLIC_ENABLE(line) |= (uint32_t)1 << (line % 32u);
}

static void take_from_outside(void) {
  const uint32_t line = PLIC_CLAIM;
  utvm_port_interrupt();
  PLIC_CLAIM = line;
}

#else

static void take_from_outside(void) {
  utvm_port_interrupt();
}

#endif

void utvm_interrupt(uintptr_t cause) {
  static const int32_t lines[] = {UTVM_CONSOLE_IRQS};
  if (cause == INTERRUPT_TIMER) {
    utvm_interrupts++;
    utvm_cycles_tick();
  } else if ((cause == INTERRUPT_EXTERNAL) && (lines[0] >= 0)) {
    take_from_outside();
  } else {
    utvm_fault_record();
  }
}
