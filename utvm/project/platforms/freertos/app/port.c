/* SPDX-License-Identifier: Apache-2.0 */
/* What the application asks for, in a task of FreeRTOS. The board's project counts cycles. */
#include <FreeRTOS.h>
#include <task.h>

#include "utvm.h"

#define STACK_WORDS (8192u / sizeof(StackType_t))

/** Write to the console; the board's project provides it. */
void utvm_console_write(const char *text, uint32_t size);

static StackType_t stack[STACK_WORDS];
static StaticTask_t task;

void utvm_port_init(void) {
}

void utvm_port_write(const char *text, uint32_t size) {
  utvm_console_write(text, size);
}

const char *utvm_port_reset_cause(void) {
  return "not known";
}

void utvm_alarm(uint64_t cycles) {
  (void)cycles; /* nothing watches over runs */
}

uint32_t utvm_stack_used(void) {
  const uint32_t unused = (uint32_t)uxTaskGetStackHighWaterMark(NULL);
  return ((uint32_t)STACK_WORDS - unused) * (uint32_t)sizeof(StackType_t);
}

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = 0u;
  return (const uint8_t *)&utvm_fault;
}

void utvm_fault_stop(void) {
  taskDISABLE_INTERRUPTS();
  for (;;) {
  }
}

static void run(void *unused) {
  (void)unused;
  utvm_main();
  vTaskSuspend(NULL);
}

int main(void) {
  (void)xTaskCreateStatic(run, "model", STACK_WORDS, NULL, tskIDLE_PRIORITY + 1u, stack, &task);
  vTaskStartScheduler();
  return 0;
}
