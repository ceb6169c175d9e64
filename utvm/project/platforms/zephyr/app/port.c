/* SPDX-License-Identifier: Apache-2.0 */
/* The port functions that the application needs, on Zephyr's kernel. */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "utvm.h"

static uint64_t total;
static uint32_t last;

void utvm_port_init(void) {
}

void utvm_port_write(const char *text, uint32_t size) {
  for (uint32_t index = 0u; index < size; index++) {
    if (text[index] != '\r') { /* the console puts one in front of each end of a line */
      printk("%c", text[index]);
    }
  }
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}

void utvm_cycles_start(void) {
  last = k_cycle_get_32();
  total = 0u;
}

uint64_t utvm_cycles(void) {
  const uint32_t now = k_cycle_get_32();
  total += (uint32_t)(now - last);
  last = now;
  return total;
}

void utvm_alarm(uint64_t cycles) {
  (void)cycles; /* runs have no watchdog */
}

uint32_t utvm_stack_used(void) {
  size_t unused = 0u;
  if (k_thread_stack_space_get(k_current_get(), &unused) != 0) {
    return 0u;
  }
  return (uint32_t)(CONFIG_MAIN_STACK_SIZE - unused);
}

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = 0u;
  return (const uint8_t *)&utvm_fault;
}

void utvm_fault_stop(void) {
  k_panic();
}

int main(void) {
  utvm_main();
  return 0;
}
