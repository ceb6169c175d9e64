/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's configuration (freertos.org, Customization). Change anything except the last paragraphs. */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

void utvm_assertion_failed(const char *file, int line, const char *expression);

#define configUSE_PREEMPTION 1
#define configTICK_RATE_HZ 1000
#define configUSE_16_BIT_TICKS 0
#define configMAX_PRIORITIES 5
#define configMAX_TASK_NAME_LEN 8
#define configMINIMAL_STACK_SIZE 64
#define configTOTAL_HEAP_SIZE 4096
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 1
#define configSTACK_DEPTH_TYPE uint32_t
#define configUSE_IDLE_HOOK 0
#define INCLUDE_vTaskSuspend 1
#define INCLUDE_vTaskDelay 1
#define INCLUDE_xTaskGetCurrentTaskHandle 1 /* needed by stream_buffer.c */
#define configASSERT(condition) ((condition) ? (void)0 : utvm_assertion_failed(__FILE__, __LINE__, #condition))

/* SysTick's clock. The lowest priority is the kernel's, and above the second number are interrupts that may not call it. */
#define configCPU_CLOCK_HZ {{ board.counter_hz or board.clock_hz }}
#define configKERNEL_INTERRUPT_PRIORITY 255
#define configMAX_SYSCALL_INTERRUPT_PRIORITY 128
#define configUSE_TICK_HOOK 1 /* for the cycle counter */

/* Ports of version 11 and of Armv8-M: the application does not change the core's security state. */
#define configENABLE_MPU 0
{% if "NTZ" in cpu_word %}
#define configENABLE_TRUSTZONE 0
#define configRUN_FREERTOS_SECURE_ONLY {{ 1 if board.secure else 0 }}
#define configENABLE_FPU {{ 1 if "fpu" in board.cpu_row.extensions else 0 }}
{% if "mve" in board.cpu_row.extensions %}
#define configENABLE_MVE 1
{% endif %}
{% endif %}

#endif
