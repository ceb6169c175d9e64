/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An RPC server for TVM's stock client.
 */
#ifndef UTVM_SERVER_H
#define UTVM_SERVER_H

#include <stdint.h>

/* The build defines UTVM_RPC_PACKET_BYTES: bytes of the longest request or reply, without its length field. */

/** Release a client's handles and memory, for a new client. */
void utvm_server_reset(void);

/**
 * Answer a request.
 *
 * @param reply  takes up to UTVM_RPC_PACKET_BYTES
 * @return bytes of the reply; 0 if the request has none
 */
uint32_t utvm_server_answer(const uint8_t *request, uint32_t bytes, uint8_t *reply);

/** Number of calls since reset, including failed ones. */
uint32_t utvm_server_calls(void);

#endif
