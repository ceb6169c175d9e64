/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application in a task of FreeRTOS. The board's stack is shared: its upper quarter is for interrupts and for code
 * that runs before the tasks. The task uses the rest, so that its overflow faults as it does without a kernel.
 */
#include <FreeRTOS.h>
#include <task.h>

#include "cortex_m.h"
#include "utvm.h"

extern StackType_t _utvm_stack_start[], _utvm_stack_end[];

void utvm_start_kernel(void);

static StaticTask_t model_task, idle_task;
static StackType_t idle_stack[configMINIMAL_STACK_SIZE];

static void run(void *unused) {
  (void)unused;
  utvm_main();
  vTaskSuspend(NULL);
}

/* The start-up code calls this in place of utvm_main(). */
void utvm_start_kernel(void) {
  const uint32_t words = (uint32_t)(_utvm_stack_end - _utvm_stack_start);
  (void)xTaskCreateStatic(run, "model", words - (words / 4u), NULL, tskIDLE_PRIORITY + 1u, _utvm_stack_start, &model_task);
  vTaskStartScheduler();
}

/* FreeRTOS needs these because of the settings in FreeRTOSConfig.h. */
void vApplicationGetIdleTaskMemory(StaticTask_t **task, StackType_t **stack, uint32_t *words) {
  *task = &idle_task;
  *stack = idle_stack;
  *words = configMINIMAL_STACK_SIZE;
}

void vApplicationTickHook(void) {
  utvm_cycles_tick();
}
