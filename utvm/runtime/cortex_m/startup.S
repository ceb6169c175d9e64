/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vector table and reset (ARM DDI 0403E, B1.5.3 and B1.5.5).
 * UTVM_INTERRUPTS is the board's number of interrupt lines, UTVM_CONSOLE_IRQS the console's lines
 * with commas between them, or -1.
 */
#include "cortex_m.h"

        /* Named here, since the linker would use the name of a temporary file. */
        .file   "startup.S"
        .syntax unified
        .thumb

        /* The xPSR that a debugger sets to start the program in RAM: Thumb state. A reset sets it by itself. */
        .global utvm_entry_xpsr
        .set    utvm_entry_xpsr, 0x01000000

        /* An image with a kernel defines the kernel's handlers. */
#ifndef UTVM_SVCALL
#define UTVM_SVCALL utvm_trap
#endif
#ifndef UTVM_PENDSV
#define UTVM_PENDSV utvm_trap
#endif
#ifndef UTVM_SYSTICK
#define UTVM_SYSTICK utvm_cycles_tick
#endif

        .section .vectors, "a"
        /* The table's address is a multiple of its size, rounded up to a power of two (B3.2.5). */
        .set    alignment, 128
        .rept   4
        .if     alignment < 4 * (16 + UTVM_INTERRUPTS)
        .set    alignment, 2 * alignment
        .endif
        .endr
        .balign alignment
        .global utvm_vectors
utvm_vectors:
        .word   _utvm_stack_end
        .word   utvm_reset
        .word   utvm_trap              /* NMI */
        .word   utvm_trap              /* HardFault */
        .word   utvm_trap              /* MemManage */
        .word   utvm_trap              /* BusFault */
        .word   utvm_trap              /* UsageFault */
        .word   0, 0, 0, 0
        .word   UTVM_SVCALL
        .word   utvm_trap              /* DebugMonitor */
        .word   0
        .word   UTVM_PENDSV            /* the watchdog */
        .word   UTVM_SYSTICK
        .set    line, 0
        .rept   UTVM_INTERRUPTS
        .set    of_console, 0
        .irp    number, UTVM_CONSOLE_IRQS
        .if     line == \number
        .set    of_console, 1
        .endif
        .endr
        .if     of_console
        .word   utvm_port_interrupt
        .else
        .word   utvm_trap
        .endif
        .set    line, line + 1
        .endr

        .text
        .global utvm_reset
        .type   utvm_reset, %function
        .thumb_func
utvm_reset:
        /* The whole stack is painted, so that its high-water mark can be read later. */
        ldr     r0, =_utvm_stack_start
        ldr     r1, =_utvm_stack_end
        ldr     r2, =UTVM_STACK_PAINT
0:      cmp     r0, r1
        bhs     1f
#ifdef UTVM_BASELINE
        stmia   r0!, {r2}
#else
        str     r2, [r0], #4
#endif
        b       0b
#ifdef UTVM_BASELINE
1:      ldr     r0, =utvm_start        /* a branch reaches 2 KB */
        bx      r0
#else
1:      b       utvm_start
#endif
        .size   utvm_reset, . - utvm_reset

        /*
         * All unexpected exceptions. The handler switches to its own stack before it accesses memory, since
         * the stack may have caused the fault.
         */
        .global utvm_trap
        .type   utvm_trap, %function
        .thumb_func
utvm_trap:
#ifdef UTVM_BASELINE
        ldr     r2, =utvm_fault_saved
        stmia   r2!, {r4-r7}
        mov     r4, r8
        mov     r5, r9
        mov     r6, r10
        mov     r7, r11
        stmia   r2!, {r4-r7}
        mov     r1, lr
        mrs     r0, msp
        movs    r3, #4
        tst     r1, r3
        beq     2f
        mrs     r0, psp
2:      ldr     r2, =_utvm_fault_stack_end
        msr     msp, r2
        ldr     r2, =utvm_fault_record
        bx      r2
#else
        mov     r1, lr
        tst     lr, #4
        ite     eq
        mrseq   r0, msp
        mrsne   r0, psp
        ldr     r2, =utvm_fault_saved
        stm     r2, {r4-r11}
#ifdef __ARM_ARCH_8M_MAIN__
        /* The limit is for the other stack. */
        movs    r2, #0
        msr     msplim, r2
#endif
        ldr     r2, =_utvm_fault_stack_end
        msr     msp, r2
        b       utvm_fault_record
#endif
        .size   utvm_trap, . - utvm_trap
