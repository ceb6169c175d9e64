/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to utvm_main(): memory, caches, interrupts. */
#include "core.h"
#include "cortex_a.h"
#include "utvm.h"

void utvm_start(void);

void utvm_start(void) {
  utvm_memory_start();
  utvm_memory_map();
  utvm_interrupts_start();
  utvm_enable_interrupts();
  /* Enable asynchronous aborts; earlier ones are reported now. */
  __asm__ volatile("cpsie a" ::: "memory");
  utvm_main();
  /* Nothing else to do. */
  utvm_disable_interrupts();
  for (;;) {
    __asm__ volatile("wfi");
  }
}
