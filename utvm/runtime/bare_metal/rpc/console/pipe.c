/* SPDX-License-Identifier: Apache-2.0 */
/* The stream to the host is the console, with a queue and interrupts each way: the core sleeps in between. */
#include "pipe.h"

#include <stdbool.h>

#include "core.h"
#include "utvm.h"

#define QUEUE_BYTES 512u /* a power of two */

typedef struct {
  uint8_t bytes[QUEUE_BYTES];
  volatile uint32_t in;
  volatile uint32_t out;
} queue_t;

static queue_t received;
static queue_t to_send;
static bool listening;

static bool put(queue_t *queue, uint8_t byte) {
  const bool room = (queue->in - queue->out) < QUEUE_BYTES;
  if (room) {
    queue->bytes[queue->in % QUEUE_BYTES] = byte;
    queue->in++;
  }
  return room;
}

static bool take(queue_t *queue, uint8_t *byte) {
  const bool there = queue->in != queue->out;
  if (there) {
    *byte = queue->bytes[queue->out % QUEUE_BYTES];
    queue->out++;
  }
  return there;
}

void utvm_pipe_received(uint8_t byte) {
  /* If the queue is full, the byte and thus its packet are lost: the host sends the packet again. */
  (void)put(&received, byte);
}

bool utvm_pipe_next(uint8_t *byte) {
  return take(&to_send, byte);
}

static void listen(void) {
  if (!listening) {
    listening = true;
    utvm_port_listen();
  }
}

uint8_t utvm_pipe_read(void) {
  uint8_t byte = 0u;
  bool there = false;
  listen();
  while (!there) {
    utvm_disable_interrupts();
    there = take(&received, &byte);
    if (!there) {
      utvm_sleep();
    }
    utvm_enable_interrupts();
  }
  return byte;
}

/* This is the queue's only writer, so interrupts are masked only while waiting. */
static void put_when_there_is_room(uint8_t byte) {
  while (!put(&to_send, byte)) {
    utvm_disable_interrupts();
    utvm_port_send();
    if ((to_send.in - to_send.out) == QUEUE_BYTES) {
      utvm_sleep();
    }
    utvm_enable_interrupts();
  }
}

void utvm_pipe_write(const uint8_t *bytes, uint32_t count) {
  if (utvm_in_handler()) {
    /* In a fault report, interrupts are off: send queued bytes first. */
    uint8_t waiting;
    utvm_port_drain();
    while (take(&to_send, &waiting)) {
      utvm_port_write((const char *)&waiting, 1u);
    }
    utvm_port_write((const char *)bytes, count);
  } else {
    listen();
    for (uint32_t index = 0u; index < count; index++) {
      put_when_there_is_room(bytes[index]);
    }
    utvm_disable_interrupts();
    utvm_port_send();
    utvm_enable_interrupts();
  }
}
