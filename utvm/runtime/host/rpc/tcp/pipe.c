/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to the host is a TCP connection: the process listens on the loopback interface, says on standard error
 * at which port, and takes the first who connects.
 */
#define _POSIX_C_SOURCE 200809L

#include "pipe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void give_up(const char *what) {
  perror(what);
  _exit(EXIT_FAILURE);
}

static int wait_for_client(void) {
  const int on = 1;
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  (void)memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if ((listener < 0) || (bind(listener, (const struct sockaddr *)&address, size) != 0) ||
      (listen(listener, 1) != 0) || (getsockname(listener, (struct sockaddr *)&address, &size) != 0)) {
    give_up("listening");
  }
  (void)fprintf(stderr, "listening on %u\n", (unsigned int)ntohs(address.sin_port));
  const int client = accept(listener, NULL, NULL);
  if (client < 0) {
    give_up("accepting");
  }
  (void)close(listener);
  /* Answers are short, and each is waited for. */
  (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return client;
}

static int connection(void) {
  static int client = -1;
  if (client < 0) {
    client = wait_for_client();
  }
  return client;
}

uint8_t utvm_pipe_read(void) {
  static uint8_t bytes[4096];
  static size_t first;
  static size_t end;
  if (first == end) {
    const ssize_t got = recv(connection(), bytes, sizeof bytes, 0);
    if (got <= 0) {
      exit(EXIT_SUCCESS); /* whoever connected has gone */
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
    const ssize_t wrote = send(connection(), &bytes[sent], count - sent, MSG_NOSIGNAL);
    if (wrote <= 0) {
      _exit(EXIT_FAILURE);
    }
    sent += (uint32_t)wrote;
  }
}
