/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sessions with the host over packets: microTVM's, and numbered requests, which survive lost and doubled packets.
 *
 * A payload is a session id (16 bits, little-endian: the host's nonce, then ours), a type (8 bits) and a body. The
 * host begins a session; both sides then drop whatever belongs to another one.
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
 * next one is executed. Where the last one comes again, its answer is sent again.
 */
#define UTVM_LINK_NUMBERED 0x11u
/** A fault has happened, and no answer comes any more; the body is utvm_fault_t, then the stack of it. */
#define UTVM_LINK_FAULT 0x12u

/** What has been counted since reset. */
typedef struct {
  uint32_t received;   /**< bytes from the host */
  uint32_t crc_errors; /**< packets with a wrong CRC */
  uint32_t dropped;    /**< packets that were broken off, too long, or of another session */
  uint32_t repeated;   /**< answers that were sent again */
} utvm_link_counts_t;

/** Begin, after reset: tell the host that there is no session. */
void utvm_link_init(void);

/** Take a byte from the host; where it ends a request, execute and answer it. */
void utvm_link_take(uint8_t byte);

/** Send words to the host's log. */
void utvm_link_log(const char *words, uint32_t length);

/** Tell the host of a fault: utvm_fault_t, and the stack that goes with it. */
void utvm_link_fault(const uint8_t *record, uint32_t bytes, const uint8_t *stack, uint32_t stack_bytes);

/** What has been counted. */
utvm_link_counts_t utvm_link_counts(void);

#endif
