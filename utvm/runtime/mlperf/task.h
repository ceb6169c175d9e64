/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Properties of the one model of the MLPerf Tiny executor; the firmware builder writes them.
 */
#ifndef UTVM_TASK_H
#define UTVM_TASK_H

#include <stdint.h>

/** Buffer for the received bytes. */
uint8_t *utvm_task_input(void);

/** Convert the received bytes, which are complete, to the model's input. */
void utvm_task_take(void);

/** Number of bytes of that buffer. */
extern const uint32_t utvm_task_input_bytes;

/** XOR mask for each received byte: 0x80 converts a picture's 0..255 to -128..127. */
extern const uint8_t utvm_task_flip;

/** How many results a run has: elements of the output, or one distance. */
extern const uint32_t utvm_task_output_count;

/** A result in thousandths, rounded, limited to 18 digits. */
int64_t utvm_task_thousandths(uint32_t index);

#endif
