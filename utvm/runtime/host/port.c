/*
 * A process on a POSIX computer as a board: the console is standard input and output, the clock counts nanoseconds,
 * a fault is a signal.
 */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "utvm.h"

#define HEAP_BYTES (16u * 1024u * 1024u)
#define NANOSECONDS 1000000000u
/* Behind the numbers of Cortex-M's exceptions. */
#define FIRST_SIGNAL 0x10000u

static uint8_t heap[HEAP_BYTES] UTVM_ALIGNED;
uint8_t *const utvm_heap_start = heap;
uint8_t *const utvm_heap_end = &heap[HEAP_BYTES];

volatile utvm_fault_t utvm_fault;

static struct timespec started;

static void take_signal(int number) {
  utvm_fault.exception = FIRST_SIGNAL + (uint32_t)number;
  utvm_fault.magic = UTVM_FAULT_MAGIC;
  utvm_fault_report();
  utvm_fault_stop();
}

void utvm_fault_stop(void) {
  _exit(EXIT_FAILURE);
}

void utvm_port_init(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (size_t index = 0u; index < (sizeof signals / sizeof signals[0]); index++) {
    struct sigaction action;
    (void)memset(&action, 0, sizeof action);
    action.sa_handler = take_signal;
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

uint32_t utvm_stack_used(void) {
  return 0u; /* the operating system's stack is not painted */
}

int main(void) {
  utvm_main();
  return EXIT_SUCCESS;
}
