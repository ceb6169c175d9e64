/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to utvm_main(): memory, floating-point unit, fault handlers. */
#include "cortex_m.h"
#include "utvm.h"

extern const uint32_t utvm_vectors[];

void utvm_start(void);

void utvm_start(void) {
  /* The unit is off after reset, and the compiler may use it anywhere (ARM DDI 0403E, B3.2.20). */
  SCB_CPACR |= CPACR_FULL_FPU;
  __asm__ volatile("dsb\n isb" ::: "memory");

  utvm_memory_start();

  SCB_VTOR = (uint32_t)utvm_vectors;
  /* Each fault to its own handler, so that the record names it; a division by zero is one. */
  SCB_SHCSR |= SHCSR_MEMFAULTENA | SHCSR_BUSFAULTENA | SHCSR_USGFAULTENA;
  SCB_CCR |= CCR_DIV_0_TRP;
  utvm_main();
  /* Nothing is left to do. Without the counter's tick nothing wakes the core but a debugger or a reset. */
  SYST_CSR = 0u;
  for (;;) {
    __asm__ volatile("wfi");
  }
}
