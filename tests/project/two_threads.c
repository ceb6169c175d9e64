/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test's application: one model in two threads of a Cortex-M, each with inputs and memory of its own, switched after
 * random counts by SysTick and PendSV. Each run is compared with the one that nothing interrupted. model.h, which the test
 * writes, says which model it is.
 */
#include <string.h>

#include "model.h"
#include "utvm.h"

#ifdef UTVM_REPORT_THROUGH_PIPE
#include "pipe.h"
#define SAY(text, size) utvm_pipe_write((const uint8_t *)(text), (size))
#else
#define SAY(text, size) utvm_port_write((text), (size))
#endif

#define RUNS 20u
#define WORDS 512u
#define PAINT 0xA5C35A3Cu
#define SYST ((volatile uint32_t *)0xE000E010u)
#define ICSR (*(volatile uint32_t *)0xE000ED04u)
#define PENDSVSET 0x10000000u
#define TO_THREAD_ON_PSP 0xFFFFFFFDu

void test_tick(void);
void test_switch(void);
uint32_t *test_next(uint32_t *stack);

static uint32_t stacks[2][WORDS] __attribute__((aligned(8)));
static uint32_t *saved[2];
static volatile uint32_t now, switches, wrong, ended, taken;
static uint32_t random_state = 1u;
static uint8_t arenas[2][(ARENA_BYTES + 15u) & ~15u] UTVM_ALIGNED;
static ELEMENT inputs[2][ELEMENTS] UTVM_ALIGNED;
static uint8_t outputs[2][(OUTPUT_BYTES + 15u) & ~15u] UTVM_ALIGNED;
static uint8_t expected[2][OUTPUT_BYTES];

static void run_model(uint32_t thread) {
  const void *const in[] = {inputs[thread], 0};
  void *const out[] = {outputs[thread], 0};
  (void)RUN(in, out, arenas[thread]);
}

void test_tick(void) {
  random_state = (random_state * 1664525u) + 1013904223u;
  SYST[1] = 200u + ((random_state >> 16) % 5000u);
  SYST[2] = 0u;
  ICSR = PENDSVSET;
}

uint32_t *test_next(uint32_t *stack) {
  saved[now] = stack;
  now ^= 1u;
  switches++;
  return saved[now];
}

/* What the exception has not put on the thread's stack goes there, the way back with it. */
__attribute__((naked)) void test_switch(void) {
#if __ARM_ARCH_ISA_THUMB == 1
  __asm__ volatile(
      "mrs r0, psp\n subs r0, #36\n mov r1, r0\n stmia r1!, {r4-r7}\n"
      "mov r4, r8\n mov r5, r9\n mov r6, r10\n mov r7, r11\n stmia r1!, {r4-r7}\n mov r4, lr\n stmia r1!, {r4}\n"
      "bl test_next\n mov r1, r0\n adds r1, #16\n ldmia r1!, {r4-r7}\n"
      "mov r8, r4\n mov r9, r5\n mov r10, r6\n mov r11, r7\n ldmia r1!, {r2}\n msr psp, r1\n"
      "ldmia r0!, {r4-r7}\n bx r2");
#elif defined(__ARM_FP)
  __asm__ volatile(
      "mrs r0, psp\n tst lr, #16\n it eq\n vstmdbeq r0!, {s16-s31}\n stmdb r0!, {r4-r11, lr}\n bl test_next\n"
      "ldmia r0!, {r4-r11, lr}\n tst lr, #16\n it eq\n vldmiaeq r0!, {s16-s31}\n msr psp, r0\n bx lr");
#else
  __asm__ volatile(
      "mrs r0, psp\n stmdb r0!, {r4-r11, lr}\n bl test_next\n"
      "ldmia r0!, {r4-r11, lr}\n msr psp, r0\n bx lr");
#endif
}

static void thread(uint32_t number) {
  for (uint32_t run = 0u; run < RUNS; run++) {
    (void)memset(outputs[number], 0, OUTPUT_BYTES);
    run_model(number);
    if (memcmp(outputs[number], expected[number], OUTPUT_BYTES) != 0) {
      wrong++;
    }
  }
  ended++;
}

static void second(void) {
  thread(1u);
  for (;;) {
  }
}

static void say(const char *text) {
  SAY(text, (uint32_t)strlen(text));
}

static void say_hex(uint32_t number, uint32_t digits) {
  static const char hexadecimal[] = "0123456789abcdef";
  for (uint32_t left = digits; left > 0u; left--) {
    SAY(&hexadecimal[(number >> (4u * (left - 1u))) & 15u], 1u);
  }
}

/* Bytes that one run takes of a painted stack, on which there is nothing else. */
static uint32_t stack_of_a_run(void) {
  const void *const in[] = {inputs[0], 0};
  void *const out[] = {outputs[0], 0};
  uint32_t words = WORDS;
  for (uint32_t word = 0u; word < WORDS; word++) {
    stacks[1][word] = PAINT;
  }
  register const void *const *r0 __asm__("r0") = in;
  register void *const *r1 __asm__("r1") = out;
  register uint8_t *r2 __asm__("r2") = arenas[0];
  __asm__ volatile("mov r4, sp\n mov sp, %3\n blx %4\n mov sp, r4"
                   : "+r"(r0), "+r"(r1), "+r"(r2)
                   : "r"(&stacks[1][WORDS]), "r"(RUN)
                   : "r3", "r4", "r12", "lr", "cc", "memory");
  while (stacks[1][WORDS - words] == PAINT) {
    words--;
  }
  return words * 4u;
}

static void both(void) {
  SYST[1] = 1000u;
  SYST[2] = 0u;
  SYST[0] = 7u;
  thread(0u);
  while (ended < 2u) {
  }
  SYST[0] = 0u;
  say("switches ");
  say_hex(switches, 8u);
  say(" wrong ");
  say_hex(wrong, 8u);
  for (uint32_t index = 0u; index < 2u; index++) {
    say(" output ");
    for (uint32_t byte = 0u; byte < OUTPUT_BYTES; byte++) {
      say_hex(expected[index][byte], 2u);
    }
  }
  say(" stack ");
  say_hex(taken, 8u);
  say(" end\r\n");
  for (;;) {
  }
}

void utvm_main(void) {
  utvm_port_init();
  for (uint32_t index = 0u; index < 2u; index++) {
    for (uint32_t element = 0u; element < ELEMENTS; element++) {
      inputs[index][element] = (ELEMENT)(int8_t)(uint8_t)((element * (37u + (index * 18u))) + index);
    }
    run_model(index);
    (void)memcpy(expected[index], outputs[index], OUTPUT_BYTES);
  }
  taken = stack_of_a_run();
  uint32_t *frame = &stacks[1][WORDS - 18u];
  frame[8] = TO_THREAD_ON_PSP;
  frame[15] = (uint32_t)second & ~1u; /* the frame of an exception, behind nine registers */
  frame[16] = 0x01000000u;
  saved[1] = frame;
  __asm__ volatile("msr psp, %0\n movs r0, #2\n msr control, r0\n isb\n bx %1" ::"r"(&stacks[0][WORDS]), "r"(both)
                   : "r0", "memory");
}

void utvm_fault_report(void) {
  say("fault end\r\n");
}
