/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the executor for MLPerf Tiny is told of its one model; the firmware builder writes it.
 */
#ifndef UTVM_TASK_H
#define UTVM_TASK_H

#include <stdint.h>

/** Bytes of the input. */
extern const uint32_t utvm_task_input_bytes;

/** What each byte that comes is combined with, by exclusive or: 0x80 turns a picture's 0..255 into -128..127. */
extern const uint8_t utvm_task_flip;

/** Elements of the output. */
extern const uint32_t utvm_task_output_count;

/** An element of the output, a real number, in thousandths, rounded. */
int32_t utvm_task_thousandths(uint32_t index);

#endif
