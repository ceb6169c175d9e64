/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the executor for MLPerf Tiny is told of its one model; the firmware builder writes it.
 */
#ifndef UTVM_TASK_H
#define UTVM_TASK_H

#include <stdint.h>

/** Where the bytes that come are put. */
uint8_t *utvm_task_input(void);

/** Make the model's input of them: all have come. */
void utvm_task_take(void);

/** How many there are. */
extern const uint32_t utvm_task_input_bytes;

/** What each byte that comes is combined with, by exclusive or: 0x80 turns a picture's 0..255 into -128..127. */
extern const uint8_t utvm_task_flip;

/** How many results a run has: elements of the output, or one distance. */
extern const uint32_t utvm_task_output_count;

/** A result, a real number, in thousandths, rounded; at most what has 18 digits. */
int64_t utvm_task_thousandths(uint32_t index);

#endif
