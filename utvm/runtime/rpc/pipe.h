/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The stream of bytes to the host. A folder of the architecture implements it for each
 * kind of stream: the build decides which.
 */
#ifndef UTVM_PIPE_H
#define UTVM_PIPE_H

#include <stdint.h>

/** Wait for the next byte from the host. */
uint8_t utvm_pipe_read(void);

/** Send bytes to the host; returns when they are queued or sent. */
void utvm_pipe_write(const uint8_t *bytes, uint32_t count);

#endif
