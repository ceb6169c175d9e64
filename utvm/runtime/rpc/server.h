/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An RPC server for TVM's stock client.
 */
#ifndef UTVM_SERVER_H
#define UTVM_SERVER_H

#include <stdint.h>

/* The build defines UTVM_RPC_PACKET_BYTES: bytes of the longest request and answer, the length in front not counted. */

/** Forget what belonged to a client and free its memory: a new one comes. */
void utvm_server_reset(void);

/**
 * Answer a request.
 *
 * @param reply  takes up to UTVM_RPC_PACKET_BYTES
 * @return bytes of the answer; 0 where the request is one that has none
 */
uint32_t utvm_server_answer(const uint8_t *request, uint32_t bytes, uint8_t *reply);

/** How many calls have been made since reset, those that failed counted. */
uint32_t utvm_server_calls(void);

#endif
