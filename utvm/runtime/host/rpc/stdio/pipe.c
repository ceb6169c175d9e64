/* SPDX-License-Identifier: Apache-2.0 */
/* The stream to the host is the process's standard input and output. */
#define _POSIX_C_SOURCE 200809L

#include "pipe.h"

#include <stdlib.h>
#include <unistd.h>

#include "utvm.h"

uint8_t utvm_pipe_read(void) {
  static uint8_t bytes[4096];
  static size_t first;
  static size_t end;
  if (first == end) {
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got <= 0) {
      exit(EXIT_SUCCESS); /* the client has closed the stream */
    }
    first = 0u;
    end = (size_t)got;
  }
  first++;
  return bytes[first - 1u];
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  utvm_port_write((const char *)bytes, count);
}
