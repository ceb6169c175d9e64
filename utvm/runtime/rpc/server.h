/**
 * An RPC server for TVM's stock client.
 */
#ifndef UTVM_SERVER_H
#define UTVM_SERVER_H

#include <stdint.h>

/** Bytes of the longest request and of the longest answer, the 64-bit length in front not counted. */
#ifndef UTVM_RPC_PACKET_BYTES
#define UTVM_RPC_PACKET_BYTES 2048u
#endif

/** Forget what belonged to a client and free its memory: a new one comes. */
void utvm_server_reset(void);

/**
 * Answer a request.
 *
 * @param reply  takes up to UTVM_RPC_PACKET_BYTES
 * @return bytes of the answer; 0 where the request is one that has none
 */
uint32_t utvm_server_answer(const uint8_t *request, uint32_t bytes, uint8_t *reply);

#endif
