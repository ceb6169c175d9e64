# What a boot sector does that a kernel does too: leave real mode, switch paging and 64 bits on, compute, ask the CPU.
    .code16
    .globl _start
_start:
    cli
    xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7c00, %sp
    # Page tables at 0x1000: one page of 2 MB, which is itself.
    mov $0x1000, %di
    mov %di, %bx
    mov $0x1800, %cx
    cld
    rep stosw
    movw $0x2003, 0x1000
    movw $0x3003, 0x2000
    movw $0x0083, 0x3000
    lgdt descriptor
    mov %cr4, %eax
    or $0x20, %al
    mov %eax, %cr4
    movzwl %bx, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    or $0x80000001, %eax
    mov %eax, %cr0
    ljmp $0x08, $long_mode

    .code64
long_mode:
    mov $0x4000000, %ebp
compute:
    incq 0x4000
    dec %ebp
    jnz compute
    mov $0x400, %ebp
ask:
    xor %eax, %eax
    cpuid
    dec %ebp
    jnz ask
    mov $0x2a, %al
    out %al, $0xf4
stop:
    hlt
    jmp stop

    .balign 8
table:
    .quad 0
    .quad 0x00209a0000000000
descriptor:
    .word . - table - 1
    .long table

    .org 510
    .word 0xaa55
