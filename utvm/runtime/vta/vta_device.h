/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver asks of the accelerator, or of what stands for it. */
#ifndef VTA_DEVICE_H
#define VTA_DEVICE_H

#include <stddef.h>

#include "vta_instruction.h"

/* Lets the accelerator read and write memory of the program.
 *
 * Returns the address that the accelerator knows the memory by, or 0 if it cannot reach it. */
uint32_t vta_device_map(const void *data, size_t bytes);

/* Says from where on in DRAM a memory's elements are counted, in the next run: 0, or within an element's size of it. */
void vta_device_base(uint32_t memory, uint32_t address);

/* Forgets what was mapped. */
void vta_device_unmap(void);

/* Runs instructions to the last, which is FINISH.
 *
 * Returns 0, or -1 and in *fault what went wrong. */
int vta_device_run(const vta_instruction *instructions, uint32_t count, vta_fault *fault);

#endif
