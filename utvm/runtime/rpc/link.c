/* SPDX-License-Identifier: Apache-2.0 */
/* See the header for the messages. */
#include "link.h"

#include <stdbool.h>
#include <string.h>

#include "framing.h"
#include "server.h"

#define HEAD_BYTES 3u
#define NUMBER_BYTES 1u
#define LENGTH_BYTES 8u
#define MESSAGE_BYTES (HEAD_BYTES + NUMBER_BYTES + LENGTH_BYTES + UTVM_RPC_PACKET_BYTES)

static uint8_t request[MESSAGE_BYTES];
/* The last reply, stored while the host may request it again. */
static uint8_t answer[MESSAGE_BYTES];
static uint32_t answer_bytes;
static utvm_deframer_t deframer;
static utvm_link_counts_t counts;

static uint8_t host_nonce;
static uint8_t our_nonce; /* 0: no session */
static uint8_t last_nonce;
static uint8_t number;
static bool session_used; /* a request of this session has been executed */

static void fill_head(uint8_t *head, uint8_t host, uint8_t ours, uint8_t type) {
  head[0] = host;
  head[1] = ours;
  head[2] = type;
}

static void send_message(const uint8_t *head, const uint8_t *body, uint32_t bytes) {
  uint16_t crc = utvm_frame_begin(HEAD_BYTES + bytes);
  crc = utvm_frame_add(crc, head, HEAD_BYTES);
  crc = utvm_frame_add(crc, body, bytes);
  utvm_frame_end(crc);
}

static void send_short(uint8_t host, uint8_t ours, uint8_t type) {
  uint8_t head[HEAD_BYTES];
  fill_head(head, host, ours, type);
  send_message(head, head, 0u);
}

static void end_session(void) {
  our_nonce = 0u;
  answer_bytes = 0u;
  number = 0u;
  session_used = false;
  utvm_server_reset();
}

void utvm_link_init(void) {
  utvm_deframer_init(&deframer, request, MESSAGE_BYTES);
  end_session();
  utvm_frame_after_reset();
  send_short(0u, 0u, UTVM_LINK_TERMINATE);
}

static void start_session(uint8_t nonce) {
  /*
   * The same nonce again: our reply was lost, and the session continues. But if it has had requests, this is another
   * host that happened to choose the same nonce.
   */
  if ((our_nonce == 0u) || (host_nonce != nonce) || session_used) {
    end_session();
    last_nonce = (last_nonce == 0xFFu) ? 1u : (uint8_t)(last_nonce + 1u);
    our_nonce = last_nonce;
    host_nonce = nonce;
  }
  send_short(host_nonce, our_nonce, UTVM_LINK_STARTED);
}

/* Execute the request after a head and send the reply after a similar head. */
static void execute(uint32_t head_bytes, uint32_t bytes) {
  const uint32_t first = head_bytes + LENGTH_BYTES;
  if (bytes < first) {
    counts.dropped++;
  } else {
    session_used = true;
    const uint32_t reply_bytes = utvm_server_answer(&request[first], bytes - first, &answer[first]);
    (void)memcpy(answer, request, head_bytes);
    (void)memset(&answer[head_bytes], 0, LENGTH_BYTES);
    for (uint32_t index = 0u; index < 4u; index++) {
      answer[head_bytes + index] = (uint8_t)((reply_bytes >> (8u * index)) & 0xFFu);
    }
    answer_bytes = first + reply_bytes;
    send_message(answer, &answer[HEAD_BYTES], answer_bytes - HEAD_BYTES);
  }
}

static void take_numbered(uint32_t bytes) {
  const uint8_t wanted = (uint8_t)(number + 1u);
  if (bytes <= HEAD_BYTES) {
    counts.dropped++;
  } else if (request[HEAD_BYTES] == wanted) {
    number = wanted;
    answer_bytes = 0u;
    execute(HEAD_BYTES + NUMBER_BYTES, bytes);
  } else if ((request[HEAD_BYTES] == number) && (answer_bytes > 0u)) {
    counts.repeated++;
    send_message(answer, &answer[HEAD_BYTES], answer_bytes - HEAD_BYTES);
  } else {
    counts.dropped++;
  }
}

static void take_message(uint32_t bytes) {
  const uint8_t type = request[2];
  const bool ours = (our_nonce != 0u) && (request[0] == host_nonce) && (request[1] == our_nonce);
  if (type == UTVM_LINK_START) {
    if (request[0] != 0u) {
      start_session(request[0]);
    }
  } else if (!ours) {
    counts.dropped++;
    if ((type == UTVM_LINK_NORMAL) || (type == UTVM_LINK_NUMBERED)) {
      /* The sender's session was ended by a reset. */
      send_short(request[0], request[1], UTVM_LINK_TERMINATE);
    }
  } else if (type == UTVM_LINK_TERMINATE) {
    end_session();
  } else if (type == UTVM_LINK_NORMAL) {
    execute(HEAD_BYTES, bytes);
    answer_bytes = 0u;
  } else if (type == UTVM_LINK_NUMBERED) {
    take_numbered(bytes);
  } else {
    counts.dropped++;
  }
}

void utvm_link_take(uint8_t byte) {
  counts.received++;
  if (utvm_deframer_take(&deframer, byte)) {
    if (deframer.length < HEAD_BYTES) {
      counts.dropped++;
    } else {
      take_message(deframer.length);
    }
  }
}

void utvm_link_log(const char *words, uint32_t length) {
  uint8_t head[HEAD_BYTES];
  fill_head(head, host_nonce, our_nonce, UTVM_LINK_LOG);
  send_message(head, (const uint8_t *)words, length);
}

void utvm_link_fault(const uint8_t *record, uint32_t bytes, const uint8_t *stack, uint32_t stack_bytes) {
  uint8_t head[HEAD_BYTES];
  fill_head(head, host_nonce, our_nonce, UTVM_LINK_FAULT);
  /* The packet being sent is cut off: FF FD always begins a new one. */
  uint16_t crc = utvm_frame_begin(HEAD_BYTES + bytes + stack_bytes);
  crc = utvm_frame_add(crc, head, HEAD_BYTES);
  crc = utvm_frame_add(crc, record, bytes);
  crc = utvm_frame_add(crc, stack, stack_bytes);
  utvm_frame_end(crc);
}

utvm_link_counts_t utvm_link_counts(void) {
  utvm_link_counts_t all = counts;
  all.crc_errors = deframer.crc_errors;
  all.dropped += deframer.dropped;
  return all;
}
