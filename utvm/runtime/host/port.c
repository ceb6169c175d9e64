/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process on a GNU/Linux computer as a board: the console is standard input and output, the clock counts
 * nanoseconds, a fault is a signal, and the watchdog is the alarm clock.
 */
#define _GNU_SOURCE

#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "utvm.h"

#define HEAP_BYTES (16u * 1024u * 1024u)
#define NANOSECONDS 1000000000u
/* Above the numbers of Cortex-M's exceptions. */
#define FIRST_SIGNAL 0x10000u

static uint8_t heap[HEAP_BYTES] UTVM_ALIGNED;
uint8_t *const utvm_heap_start = heap;
uint8_t *const utvm_heap_end = &heap[HEAP_BYTES];

static struct timespec started;
/* Code addresses: the fault and its callers, preceded by those of the signal handler. */
static void *places[UTVM_FAULT_STACK_BYTES / sizeof(void *)];
static uint32_t places_bytes;
/* The stack of signal handlers: the other one may have caused the fault. */
static uint8_t signal_stack[65536] UTVM_ALIGNED;

const uint8_t *utvm_fault_stack(uint32_t *bytes) {
  *bytes = places_bytes;
  return (const uint8_t *)places;
}

static void take_signal(int number, siginfo_t *information, void *context) {
  const int most = (int)(sizeof places / sizeof places[0]) - 1;
  if ((information->si_code <= 0) && (information->si_pid != getpid())) {
    /* A signal from another process is not a fault of the program: it ends this process as usual. */
    (void)signal(number, SIG_DFL);
    (void)raise(number);
    return;
  }
  utvm_fault_begin();
  places[0] = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  places_bytes = (uint32_t)(1 + backtrace(&places[1], most)) * (uint32_t)sizeof places[0];
  utvm_fault.exception = FIRST_SIGNAL + (uint32_t)number;
  utvm_fault.stack_bytes = places_bytes;
  utvm_fault.magic = UTVM_FAULT_MAGIC;
  utvm_fault_report();
  utvm_fault_stop();
}

void utvm_fault_stop(void) {
  _exit(EXIT_FAILURE);
}

void utvm_port_init(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
  stack_t stack;
  (void)memset(&stack, 0, sizeof stack);
  stack.ss_sp = signal_stack;
  stack.ss_size = sizeof signal_stack;
  (void)sigaltstack(&stack, NULL);
  /* The first call loads a library, which a signal handler must not. */
  (void)backtrace(places, 1);
  for (size_t index = 0u; index < (sizeof signals / sizeof signals[0]); index++) {
    struct sigaction action;
    (void)memset(&action, 0, sizeof action);
    action.sa_sigaction = take_signal;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    (void)sigaction(signals[index], &action, NULL);
  }
}

void utvm_port_write(const char *text, uint32_t size) {
  uint32_t sent = 0u;
  while (sent < size) {
    const ssize_t wrote = write(STDOUT_FILENO, &text[sent], size - sent);
    if (wrote <= 0) {
      _exit(EXIT_FAILURE);
    }
    sent += (uint32_t)wrote;
  }
}

const char *utvm_port_reset_cause(void) {
  return "process started";
}

void utvm_cycles_start(void) {
  (void)clock_gettime(CLOCK_MONOTONIC, &started);
}

uint64_t utvm_cycles(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t seconds = (int64_t)now.tv_sec - (int64_t)started.tv_sec;
  return (uint64_t)((seconds * (int64_t)NANOSECONDS) + ((int64_t)now.tv_nsec - (int64_t)started.tv_nsec));
}

void utvm_alarm(uint64_t cycles) {
  struct itimerval timer;
  (void)memset(&timer, 0, sizeof timer);
  timer.it_value.tv_sec = (time_t)(cycles / NANOSECONDS);
  timer.it_value.tv_usec = (suseconds_t)((cycles % NANOSECONDS) / 1000u);
  (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* Called by the C library's assert(). */
void __assert_fail(const char *expression, const char *file, unsigned int line, const char *function) {
  (void)function;
  utvm_assertion_failed(file, (int)line, expression);
  _exit(EXIT_FAILURE);
}

uint32_t utvm_stack_used(void) {
  return 0u; /* the operating system's stack is not painted */
}

int main(void) {
  utvm_main();
  return EXIT_SUCCESS;
}
