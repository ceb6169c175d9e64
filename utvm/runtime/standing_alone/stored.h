/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Stored data of a standalone image's model; the firmware builder writes it.
 */
#ifndef UTVM_STORED_H
#define UTVM_STORED_H

#include <stdint.h>

/** The inputs, constants in the image, and a null pointer. */
extern const void *const utvm_stored_inputs[];

/** Bytes of each output. */
extern const uint32_t utvm_stored_output_bytes[];
extern const uint32_t utvm_stored_output_count;

#endif
