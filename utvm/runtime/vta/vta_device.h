/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's interface to the accelerator, or to a model. */
#ifndef VTA_DEVICE_H
#define VTA_DEVICE_H

#include <stddef.h>

#include "vta_instruction.h"

/* Lets the accelerator read and write memory of the program.
 *
 * Returns the accelerator's address of the memory, or 0 if it cannot access it. */
uint32_t vta_device_map(const void *data, size_t bytes);

/* Sets the DRAM address of a memory's element 0 for the next run: 0, or less than an element's size from it. */
void vta_device_base(uint32_t memory, uint32_t address);

/* Unmaps all memory. */
void vta_device_unmap(void);

/* Runs instructions to the last, which is FINISH.
 *
 * Returns 0, or -1 and the fault in *fault. */
int vta_device_run(const vta_instruction *instructions, uint32_t count, vta_fault *fault);

#endif
