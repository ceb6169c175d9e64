/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to the host goes through the debugger: the core stops at a breakpoint instruction, and the debugger
 * performs the operation. Source: Arm, "Semihosting for AArch32 and AArch64", 2.0.
 *
 * Every call stops the core, so output is collected until the board waits for input. Without a debugger, the
 * breakpoint is a fault.
 */
#include <stdbool.h>

#include "core.h"
#include "pipe.h"

#define SYS_OPEN 0x01u
#define SYS_WRITE 0x05u
#define SYS_READ 0x06u
#define OPEN_TO_READ 0u  /* "r" */
#define OPEN_TO_WRITE 4u /* "w" */
#define CONSOLE_NAME_LETTERS 3u
#define BUFFER_BYTES 1024u

static uint8_t received[BUFFER_BYTES];
static uint8_t to_send[BUFFER_BYTES];
static uint32_t first;
static uint32_t end;
static uint32_t waiting;
static uintptr_t input;
static uintptr_t output;
static bool is_open;

static uintptr_t open_console(uintptr_t mode) {
  static const char name[] = ":tt";
  const uintptr_t arguments[3] = {(uintptr_t)name, mode, CONSOLE_NAME_LETTERS};
  return utvm_semihosting(SYS_OPEN, arguments);
}

static void open_once(void) {
  if (!is_open) {
    is_open = true;
    input = open_console(OPEN_TO_READ);
    output = open_console(OPEN_TO_WRITE);
  }
}

/* SYS_READ and SYS_WRITE return the number of bytes that were not transferred. */
static uint32_t left_over(uintptr_t operation, uintptr_t handle, const uint8_t *bytes, uint32_t count) {
  const uintptr_t arguments[3] = {handle, (uintptr_t)bytes, count};
  const uintptr_t left = utvm_semihosting(operation, arguments);
  return (left < count) ? (uint32_t)left : count;
}

static void flush(void) {
  uint32_t done = 0u;
  open_once();
  while (done < waiting) {
    const uint32_t count = waiting - done;
    done += count - left_over(SYS_WRITE, output, &to_send[done], count);
  }
  waiting = 0u;
}

uint8_t utvm_pipe_read(void) {
  while (first == end) {
    flush();
    first = 0u;
    end = BUFFER_BYTES - left_over(SYS_READ, input, received, BUFFER_BYTES);
  }
  first++;
  return received[first - 1u];
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  for (uint32_t index = 0u; index < count; index++) {
    if (waiting == BUFFER_BYTES) {
      flush();
    }
    to_send[waiting] = bytes[index];
    waiting++;
  }
  if (utvm_in_handler()) {
    /* In a fault report: nothing is read afterwards. */
    flush();
  }
}
