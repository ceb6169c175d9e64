/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors and reset (ARM DDI 0406C, B1.8 and B1.9). A debugger loads the image and starts it here: the core may come
 * out of a reset, or out of another program's middle.
 */
#include "cortex_a.h"

        /* Named here, since the linker would use the name of a temporary file. */
        .file   "startup.S"
        .syntax unified
        .arm

        .section .vectors, "ax"
        .balign 32
        .global utvm_vectors
utvm_vectors:
        b       utvm_reset
        b       trap_undefined
        b       trap_supervisor_call
        b       trap_prefetch_abort
        b       trap_data_abort
        b       .                       /* not used */
        b       interrupt
        b       trap_fiq

        /* The debugger sets this CPSR before it starts the image: Supervisor mode, Arm state, interrupts masked. */
        .global utvm_entry_cpsr
        .set    utvm_entry_cpsr, 0x1D3

        .text
        .global utvm_reset
        .type   utvm_reset, %function
utvm_reset:
        cpsid   aif, #MODE_SYSTEM
        ldr     sp, =_utvm_stack_end

        /*
         * An earlier program may have left the data cache on: its contents are then written back to memory. After a
         * reset, the contents are undefined (DDI 0407G, 7.1), and are only invalidated.
         */
        mrc     p15, 0, r11, c1, c0, 0  /* SCTLR */
        ldr     r0, =0x1FE0             /* ways in bits 31:30, sets in 12:5: 32 KiB, lines of 32 bytes, four ways */
0:      mov     r1, r0
1:      tst     r11, #(1 << 2)
        mcrne   p15, 0, r1, c7, c14, 2  /* DCCISW */
        mcreq   p15, 0, r1, c7, c6, 2   /* DCISW */
        adds    r1, r1, #(1 << 30)
        bcc     1b
        subs    r0, r0, #0x20
        bpl     0b
        dsb
        bic     r11, r11, #0x1000       /* instruction cache */
        bic     r11, r11, #0x2800       /* high vectors, branch prediction */
        bic     r11, r11, #0x07         /* memory management, alignment check, data cache */
        bic     r11, r11, #(1 << 30)    /* exceptions in Arm state */
        mcr     p15, 0, r11, c1, c0, 0
        mov     r0, #0
        mcr     p15, 0, r0, c7, c5, 0   /* ICIALLU */
        mcr     p15, 0, r0, c7, c5, 6   /* BPIALL */
        mcr     p15, 0, r0, c8, c7, 0   /* TLBIALL */
        ldr     r0, =utvm_vectors
        mcr     p15, 0, r0, c12, c0, 0  /* VBAR */

        /* The floating-point unit, as IEEE 754 has it (DDI 0406C, B1.11 and B6.1.38). */
        mrc     p15, 0, r0, c1, c0, 2   /* CPACR */
        orr     r0, r0, #(0xF << 20)
        mcr     p15, 0, r0, c1, c0, 2
        dsb
        isb
        mov     r0, #0x40000000
        vmsr    fpexc, r0
        mov     r0, #0
        vmsr    fpscr, r0

        /* The whole stack is painted, so that its high-water mark can be read later. */
        ldr     r0, =_utvm_stack_start
        ldr     r1, =_utvm_stack_end
        ldr     r2, =UTVM_STACK_PAINT
2:      cmp     r0, r1
        strlo   r2, [r0], #4
        blo     2b
        b       utvm_start
        .size   utvm_reset, . - utvm_reset

        /*
         * Unexpected exceptions. The stack pointer of the mode points to a buffer for the registers, since the stack may
         * have failed. The link register is a few bytes behind the instruction (DDI 0406C, table B1-7).
         */
        .macro  trap name, number, behind
        .type   trap_\name, %function
trap_\name:
        sub     lr, lr, #\behind
        ldr     sp, =utvm_fault_frame
        stmia   sp, {r0-r14}^
        nop
        str     lr, [sp, #(4 * FRAME_PC)]
        mrs     r2, spsr
        str     r2, [sp, #(4 * FRAME_STATUS)]
        mov     r0, sp
        mov     r1, #\number
        b       fault
        .size   trap_\name, . - trap_\name
        .endm

        trap    undefined, EXCEPTION_UNDEFINED, 4
        trap    supervisor_call, EXCEPTION_SUPERVISOR_CALL, 4
        trap    prefetch_abort, EXCEPTION_PREFETCH_ABORT, 4
        trap    data_abort, EXCEPTION_DATA_ABORT, 8
        trap    fiq, EXCEPTION_FIQ, 4

        .type   fault, %function
fault:
        ldr     sp, =_utvm_fault_stack_end
        b       utvm_fault_record
        .size   fault, . - fault

        /*
         * All interrupts. C runs on the program's stack in the program's mode. The registers are stored separately, for
         * the fault record if the interrupt is the watchdog's.
         */
        .type   interrupt, %function
interrupt:
        sub     lr, lr, #4
        ldr     sp, =utvm_interrupt_frame
        stmia   sp, {r0-r14}^
        nop
        str     lr, [sp, #(4 * FRAME_PC)]
        mrs     r0, spsr
        str     r0, [sp, #(4 * FRAME_STATUS)]
        cps     #MODE_SYSTEM
        mov     r4, sp
        bic     sp, sp, #7
        vmrs    r5, fpscr
        vpush   {d0-d7}
        vpush   {d16-d31}
        bl      utvm_interrupt
        vpop    {d16-d31}
        vpop    {d0-d7}
        vmsr    fpscr, r5
        mov     sp, r4
        cps     #MODE_IRQ
        movs    r1, r0
        ldr     r0, =utvm_interrupt_frame
        bne     fault
        ldr     r1, [r0, #(4 * FRAME_STATUS)]
        msr     spsr_cxsf, r1
        ldr     lr, [r0, #(4 * FRAME_PC)]
        ldmia   r0, {r0-r14}^
        nop
        movs    pc, lr
        .size   interrupt, . - interrupt

        .bss
        .balign 4
        .global utvm_fault_frame
utvm_fault_frame:
        .space  4 * FRAME_WORDS
utvm_interrupt_frame:
        .space  4 * FRAME_WORDS
