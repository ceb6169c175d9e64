/* SPDX-License-Identifier: Apache-2.0 */
/* Reset and traps (RISC-V Instruction Set Manual, Volume II, 3.1 and 3.4). */
#include "riscv.h"

        /* Named here, since the linker would use the name of a temporary file. */
        .file   "startup.S"

#if __riscv_xlen == 64
#define STORE   sd
#define LOAD    ld
#else
#define STORE   sw
#define LOAD    lw
#endif
#define WORD    (__riscv_xlen / 8)

#if defined(__riscv_flen) && __riscv_flen == 64
#define STORE_FLOAT     fsd
#define LOAD_FLOAT      fld
#else
#define STORE_FLOAT     fsw
#define LOAD_FLOAT      flw
#endif
#ifdef __riscv_flen
#define FLOAT   (__riscv_flen / 8)
#else
#define FLOAT   0
#endif

        /* First in its memory, since the core starts here. */
        .section .vectors, "ax"
        .global utvm_vectors
utvm_vectors:
        j       utvm_reset

        .text
        .global utvm_reset
        .type   utvm_reset, @function
utvm_reset:
        csrw    mie, zero
        la      tp, _utvm_bss_start
        la      t0, utvm_trap
        csrw    mtvec, t0
        la      t0, utvm_trap_registers
        csrw    mscratch, t0

#ifdef __riscv_flen
        /* The unit may be off after reset, and the compiler may use it anywhere. */
        li      t0, MSTATUS_FS_INITIAL
        csrs    mstatus, t0
        fscsr   zero
#endif

        /*
         * Make a stack overflow fault, whatever is below the stack. These entries come first, so they take precedence;
         * they are locked, so that they apply in machine mode, until the next reset.
         */
        la      t0, _utvm_stack_start
        srli    t1, t0, 2
        csrw    pmpaddr1, t1
        li      t2, -UTVM_GUARD_BYTES
        add     t0, t0, t2
        srli    t1, t0, 2
        csrw    pmpaddr0, t1
        li      t0, PMPCFG_FORBIDDEN_UP_TO_HERE << 8
        csrw    pmpcfg0, t0

        /* The whole stack is painted, so that its high-water mark can be read later. */
        la      t0, _utvm_stack_start
        la      sp, _utvm_stack_end
        li      t2, UTVM_STACK_PAINT
0:      sw      t2, 0(t0)
        addi    t0, t0, 4
        bltu    t0, sp, 0b
        j       utvm_start
        .size   utvm_reset, . - utvm_reset

        /*
         * The handler of all traps. It does not use the program's stack, which may have caused the fault, and whose use
         * should not include interrupts. There is one buffer for registers, since handlers are not interrupted; a fault
         * in a handler overwrites it.
         */
        .global utvm_trap
        .type   utvm_trap, @function
        .balign 4
utvm_trap:
        csrrw   t0, mscratch, t0
        .irp    number, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        STORE   x\number, (\number * WORD)(t0)
        .endr
        csrrw   t1, mscratch, t0
        STORE   t1, (5 * WORD)(t0)
        csrr    t1, mepc
        STORE   t1, 0(t0)
        la      sp, _utvm_fault_stack_end
        csrr    a0, mcause
        bltz    a0, 1f
        j       utvm_fault_record

        /* An interrupt. C may change caller-saved registers; it preserves callee-saved ones. */
1:      addi    sp, sp, -(20 * FLOAT + 16)
#ifdef __riscv_flen
        .set    place, 0
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
        STORE_FLOAT f\number, (place * FLOAT)(sp)
        .set    place, place + 1
        .endr
        frcsr   t0
        sw      t0, (20 * FLOAT)(sp)
#endif
        slli    a0, a0, 1
        srli    a0, a0, 1
        call    utvm_interrupt
#ifdef __riscv_flen
        lw      t0, (20 * FLOAT)(sp)
        fscsr   t0
        .set    place, 0
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
        LOAD_FLOAT f\number, (place * FLOAT)(sp)
        .set    place, place + 1
        .endr
#endif
        csrr    t0, mscratch
        .irp    number, 1, 2, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
        LOAD    x\number, (\number * WORD)(t0)
        .endr
        LOAD    t0, (5 * WORD)(t0)
        mret
        .size   utvm_trap, . - utvm_trap
