/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test's application: one model in two threads of a Cortex-M3, each with inputs and memory of its own, switched
 * after random counts by SysTick and PendSV. Each run is compared with the one that nothing interrupted.
 */
#include <string.h>

#include "digits_int8.h"
#include "utvm.h"

#define RUNS 20u
#define WORDS 512u
#define ELEMENTS 64u
#define CLASSES 10u
#define SYST ((volatile uint32_t *)0xE000E010u)
#define ICSR (*(volatile uint32_t *)0xE000ED04u)
#define PENDSVSET 0x10000000u

void test_tick(void);
void test_switch(void);
uint32_t *test_next(uint32_t *stack);

static uint32_t stacks[2][WORDS] __attribute__((aligned(8)));
static uint32_t *saved[2];
static volatile uint32_t now, switches, wrong, ended;
static uint32_t random_state = 1u;
static uint8_t arenas[2][DIGITS_INT8_ARENA_BYTES] UTVM_ALIGNED;
static int8_t inputs[2][ELEMENTS] UTVM_ALIGNED;
static int8_t expected[2][CLASSES];

static void run_model(uint32_t thread) {
  const void *const in[] = {inputs[thread], 0};
  void *const out[] = {&arenas[thread][DIGITS_INT8_OUTPUT_0_OFFSET], 0};
  (void)digits_int8_run(in, out, arenas[thread]);
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

__attribute__((naked)) void test_switch(void) {
  __asm__ volatile(
      "mrs r0, psp\n stmdb r0!, {r4-r11}\n push {r4, lr}\n bl test_next\n pop {r4, lr}\n"
      "ldmia r0!, {r4-r11}\n msr psp, r0\n bx lr");
}

static void thread(uint32_t number) {
  for (uint32_t run = 0u; run < RUNS; run++) {
    run_model(number);
    if (memcmp(&arenas[number][DIGITS_INT8_OUTPUT_0_OFFSET], expected[number], CLASSES) != 0) {
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
  utvm_port_write(text, (uint32_t)strlen(text));
}

static void say_number(const char *before, uint32_t number) {
  static const char hexadecimal[] = "0123456789abcdef";
  say(before);
  for (uint32_t shift = 32u; shift > 0u; shift -= 4u) {
    utvm_port_write(&hexadecimal[(number >> (shift - 4u)) & 15u], 1u);
  }
}

static void both(void) {
  SYST[1] = 1000u;
  SYST[2] = 0u;
  SYST[0] = 7u;
  thread(0u);
  while (ended < 2u) {
  }
  SYST[0] = 0u;
  say_number("switches ", switches);
  say_number(" wrong ", wrong);
  for (uint32_t index = 0u; index < 2u; index++) {
    say_number(" output ", (uint32_t)(uint8_t)expected[index][0]);
  }
  say(" end\r\n");
  for (;;) {
  }
}

void utvm_main(void) {
  utvm_port_init();
  for (uint32_t index = 0u; index < 2u; index++) {
    for (uint32_t element = 0u; element < ELEMENTS; element++) {
      inputs[index][element] = (int8_t)(uint8_t)((element * (37u + (index * 18u))) + index);
    }
    run_model(index);
    (void)memcpy(expected[index], &arenas[index][DIGITS_INT8_OUTPUT_0_OFFSET], CLASSES);
  }
  uint32_t *frame = &stacks[1][WORDS - 16u];
  frame[14] = (uint32_t)second & ~1u; /* the frame of an exception, behind eight registers */
  frame[15] = 0x01000000u;
  saved[1] = frame;
  __asm__ volatile("msr psp, %0\n movs r0, #2\n msr control, r0\n isb\n bx %1" ::"r"(&stacks[0][WORDS]), "r"(both)
                   : "r0", "memory");
}

void utvm_fault_report(void) {
  say("fault end\r\n");
}
