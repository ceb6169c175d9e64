/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sessions with the host over packets: microTVM's, and numbered requests, which survive lost and doubled packets.
 *
 * A payload is a session id (16 bits, little-endian: the host's nonce, then ours), a type (8 bits) and a body. The
 * host begins a session; both sides then drop messages of other sessions.
 */
#ifndef UTVM_LINK_H
#define UTVM_LINK_H

#include <stdint.h>

/** Types of messages. */
#define UTVM_LINK_START 0u
#define UTVM_LINK_STARTED 1u
#define UTVM_LINK_TERMINATE 2u
#define UTVM_LINK_LOG 3u
/** A request or answer: its length (64 bits), then an RPC packet. */
#define UTVM_LINK_NORMAL 0x10u
/**
 * The same after a number (8 bits). Requests count 1, 2, ..., 255, 0, 1 from the beginning of the session; only the
 * next one is executed. If the last one is repeated, its reply is sent again.
 */
#define UTVM_LINK_NUMBERED 0x11u
/** A fault, after which there are no replies; the body is utvm_fault_t, then its stack. */
#define UTVM_LINK_FAULT 0x12u

/** Counters since reset. */
typedef struct {
  uint32_t received;   /**< bytes from the host */
  uint32_t crc_errors; /**< packets with a wrong CRC */
  uint32_t dropped;    /**< packets that were broken off, too long, or of another session */
  uint32_t repeated;   /**< answers that were sent again */
} utvm_link_counts_t;

/** Start after a reset: tell the host that there is no session. */
void utvm_link_init(void);

/** Take a byte from the host; if it completes a request, execute it and reply. */
void utvm_link_take(uint8_t byte);

/** Send a message to the host's log. */
void utvm_link_log(const char *words, uint32_t length);

/** Send a fault to the host: utvm_fault_t and its stack. */
void utvm_link_fault(const uint8_t *record, uint32_t bytes, const uint8_t *stack, uint32_t stack_bytes);

/** Return the counters. */
utvm_link_counts_t utvm_link_counts(void);

#endif
