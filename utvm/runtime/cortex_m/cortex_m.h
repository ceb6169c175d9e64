/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Core registers of Armv7-M (ARM DDI 0403E, B3.2 and C1.8). Armv6-M (DDI 0419) and Armv8-M (DDI 0553B) have those used
 * here at the same addresses, or not at all.
 */
#ifndef UTVM_CORTEX_M_H
#define UTVM_CORTEX_M_H

#include "bare_metal.h"

/** Armv6-M and Armv8-M's baseline: no status registers of faults, no cycle counter, few instructions. */
#if __ARM_ARCH_ISA_THUMB == 1
#define UTVM_BASELINE 1
#endif

#ifndef __ASSEMBLER__
#include <stdint.h>

#define SYST_CSR UTVM_REGISTER(0xE000E010u)
#define SYST_RVR UTVM_REGISTER(0xE000E014u)
#define SYST_CVR UTVM_REGISTER(0xE000E018u)
#define NVIC_ISER(line) UTVM_REGISTER(0xE000E100u + (4u * ((line) / 32u)))
#define SCB_ICSR UTVM_REGISTER(0xE000ED04u)
#define SCB_VTOR UTVM_REGISTER(0xE000ED08u)
#define SCB_CCR UTVM_REGISTER(0xE000ED14u)
#define SCB_SHCSR UTVM_REGISTER(0xE000ED24u)
#define SCB_CFSR UTVM_REGISTER(0xE000ED28u)
#define SCB_HFSR UTVM_REGISTER(0xE000ED2Cu)
#define SCB_MMFAR UTVM_REGISTER(0xE000ED34u)
#define SCB_BFAR UTVM_REGISTER(0xE000ED38u)
#define SCB_CPACR UTVM_REGISTER(0xE000ED88u)
#define SCB_ICIALLU UTVM_REGISTER(0xE000EF50u)
#define MPU_CTRL UTVM_REGISTER(0xE000ED94u)
#define MPU_RNR UTVM_REGISTER(0xE000ED98u)
#define MPU_RBAR UTVM_REGISTER(0xE000ED9Cu)
#define MPU_RASR UTVM_REGISTER(0xE000EDA0u)
#define DWT_CTRL UTVM_REGISTER(0xE0001000u)
#define DWT_CYCCNT UTVM_REGISTER(0xE0001004u)
#define DWT_LAR UTVM_REGISTER(0xE0001FB0u)
#define DEMCR UTVM_REGISTER(0xE000EDFCu)

#define SYST_CSR_ENABLE (1u << 0)
#define SYST_CSR_TICKINT (1u << 1)
#define SYST_CSR_CLKSOURCE (1u << 2)
#define ICSR_PENDSTSET 0x4000000u
#define ICSR_PENDSVSET (1u << 28)
#define CCR_DIV_0_TRP (1u << 4)
#define CCR_IC (1u << 17)
#define SHCSR_MEMFAULTENA (1u << 16)
#define SHCSR_BUSFAULTENA (1u << 17)
#define SHCSR_USGFAULTENA (1u << 18)
#define CPACR_FULL_FPU (0xFu << 20)
#define CFSR_STKOF 0x100000u
#define MPU_CTRL_ENABLE (1u << 0)
#define MPU_CTRL_PRIVDEFENA (1u << 2)
#define MPU_RASR_ENABLE (1u << 0)
#define MPU_RASR_256_BYTES (7u << 1)
#define MPU_RASR_XN (1u << 28)
#define DWT_CTRL_CYCCNTENA (1u << 0)
#define DWT_LAR_KEY 0xC5ACCE55u
#define DEMCR_TRCENA (1u << 24)

/** SysTick's handler: keeps the 64-bit cycle counter. */
void utvm_cycles_tick(void);

/** r4 to r11 on entry to the fault handler. */
extern uint32_t utvm_fault_saved[8];

/**
 * Write utvm_fault and stop.
 *
 * @param frame       the exception frame, if the stack held
 * @param exc_return  EXC_RETURN: LR on entry to the handler
 */
void utvm_fault_record(const uint32_t *frame, uint32_t exc_return);

#endif /* __ASSEMBLER__ */
#endif
