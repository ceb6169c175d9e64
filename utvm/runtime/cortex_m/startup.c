/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to utvm_main(): memory, floating-point unit, fault handlers. */
#include "cortex_m.h"
#include "utvm.h"

extern const uint32_t utvm_vectors[];
#ifdef __ARM_ARCH_8M_MAIN__
extern const uint32_t _utvm_stack_start[];
#endif

void utvm_start(void);

#ifdef UTVM_STACK_GUARD

extern const uint8_t _utvm_stack_guard[];

/* Accesses below the stack do not fail by themselves: make an overflow fault (ARM DDI 0403E, B3.5). */
static void guard_stack(void) {
  MPU_RNR = 0u;
  MPU_RBAR = (uint32_t)(uintptr_t)_utvm_stack_guard;
  MPU_RASR = MPU_RASR_XN | MPU_RASR_256_BYTES | MPU_RASR_ENABLE;
  MPU_CTRL = MPU_CTRL_PRIVDEFENA | MPU_CTRL_ENABLE;
  __asm__ volatile("dsb\n isb" ::: "memory");
}

#endif

void utvm_interrupts_from(uint32_t line) {
  NVIC_ISER(line) = (uint32_t)1 << (line % 32u);
}

void utvm_start(void) {
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  /* The unit is off after reset, and the compiler may use it anywhere (ARM DDI 0403E, B3.2.20). */
  SCB_CPACR |= CPACR_FULL_FPU;
  __asm__ volatile("dsb\n isb" ::: "memory");
#endif
#ifdef __ARM_ARCH_8M_MAIN__
  __asm__ volatile("msr msplim, %0" ::"r"(_utvm_stack_start));
#endif

  utvm_memory_start();

  SCB_VTOR = (uint32_t)utvm_vectors; /* if the core has it: a Cortex-M0 has its table at 0 */
#ifndef UTVM_BASELINE
  /* Each fault to its own handler, so that the record names it; a division by zero is one. */
  SCB_SHCSR |= SHCSR_MEMFAULTENA | SHCSR_BUSFAULTENA | SHCSR_USGFAULTENA;
  SCB_CCR |= CCR_DIV_0_TRP;
#endif
#ifdef UTVM_STACK_GUARD
  guard_stack();
#endif
  utvm_main();
  /* Nothing else to do. Without the counter's tick, only a debugger or a reset wakes the core. */
  SYST_CSR = 0u;
  for (;;) {
    __asm__ volatile("wfi");
  }
}
