/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one model on a few inputs on the emulated MPS2 AN500 and says what came out and how long it took.
 *
 * Output goes out by semihosting (Arm IHI 0100: SYS_WRITE0 0x04, SYS_EXIT_EXTENDED 0x20). Time is taken from the
 * CMSDK timer 0 (Arm DDI 0479, APB timer), which counts down at 25 MHz: under QEMU's -icount shift=5 an instruction
 * takes 32 ns of its clock and a tick 40 ns. */
#include <stdint.h>

#include "case.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define TIMER_CONTROL (*(volatile uint32_t *)0x40000000u)
#define TIMER_VALUE (*(volatile uint32_t *)0x40000004u)
#define TIMER_RELOAD (*(volatile uint32_t *)0x40000008u)

extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_end[];

int main(void);

static void semihost(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void leave(uint32_t code)
{
    const uint32_t block[2] = {0x20026u, code}; /* ADP_Stopped_ApplicationExit */
    semihost(0x20u, block);
    for (;;) {
    }
}

static void print_hex(const uint8_t *bytes, uint32_t count)
{
    char text[65];
    for (uint32_t done = 0; done < count;) {
        uint32_t used = 0;
        while (used < 64u && done < count) {
            text[used++] = "0123456789abcdef"[bytes[done] >> 4];
            text[used++] = "0123456789abcdef"[bytes[done] & 15u];
            ++done;
        }
        text[used] = '\0';
        semihost(0x04u, text);
    }
    semihost(0x04u, "\n");
}

static void print_number(uint32_t number)
{
    const uint8_t bytes[4] = {
        (uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number};
    print_hex(bytes, 4u);
}

static void failed(void)
{
    semihost(0x04u, "fault\n");
    leave(9u);
}

void reset(void)
{
    const uint32_t *from = data_load;
    for (uint32_t *to = data_start; to < data_end; ++to) {
        *to = *from++;
    }
    for (uint32_t *to = bss_start; to < bss_end; ++to) {
        *to = 0;
    }
    CPACR |= 0xFu << 20; /* the floating-point unit, for all */
    __asm__ volatile("dsb\n\tisb");
    leave((uint32_t)main());
}

typedef union {
    const uint32_t *stack;
    void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = stack_end},  {.handler = reset},  {.handler = failed}, {.handler = failed},
    {.handler = failed},   {.handler = failed}, {.handler = failed}};

int main(void)
{
    TIMER_CONTROL = 0;
    TIMER_RELOAD = 0xFFFFFFFFu;
    TIMER_VALUE = 0xFFFFFFFFu;
    TIMER_CONTROL = 1;
    const uint32_t first = TIMER_VALUE;
    const uint32_t reading = first - TIMER_VALUE;
    for (uint32_t number = 0; number < CASE_COUNT; ++number) {
        case_prepare(number);
        const uint32_t start = TIMER_VALUE;
        const int32_t result = case_run();
        const uint32_t ticks = start - TIMER_VALUE - reading;
        if (result != 0) {
            return 1;
        }
        print_number(ticks);
        case_print(print_hex);
    }
    return 0;
}
