/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to the host is a TCP connection, which the process has as its standard input: it does not listen, since
 * every user of a computer can connect to a port.
 */
#define _POSIX_C_SOURCE 200809L

#include "pipe.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

uint8_t utvm_pipe_read(void) {
  static uint8_t bytes[4096];
  static size_t first;
  static size_t end;
  if (first == end) {
    const ssize_t got = recv(STDIN_FILENO, bytes, sizeof bytes, 0);
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
  uint32_t sent = 0u;
  while (sent < count) {
    const ssize_t wrote = send(STDIN_FILENO, &bytes[sent], count - sent, MSG_NOSIGNAL);
    if (wrote <= 0) {
      _exit(EXIT_FAILURE);
    }
    sent += (uint32_t)wrote;
  }
}
