/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that compiled operators make: they queue instructions for VTA, and run them.
 *
 * Each returns 0, or -1 after a fault: the first fault is stored, later calls do nothing, and VTASynchronize
 * reports it. Addresses within memories on the chip, offsets and sizes count elements of that memory.
 * The driver finds which stage must wait for which, from the elements that instructions read and write on the chip. */
#ifndef VTA_H
#define VTA_H

#include "vta_instruction.h"

/* Maps memory for an operator's loads and stores; once per run, before them. Const memory is only
 * loaded from. */
int VTABufferMap(const void *data, uint64_t bytes);

/* Loads y_size rows of x_size elements, x_stride apart, into a dense tile on the chip, with zeros around it. */
int VTALoadBuffer2D(const void *source, uint32_t offset, uint32_t x_size, uint32_t y_size, uint32_t x_stride,
                    uint32_t x_pad_before, uint32_t y_pad_before, uint32_t x_pad_after, uint32_t y_pad_after,
                    uint32_t sram, uint32_t memory);

/* Stores a dense tile on the chip as y_size rows of x_size elements, x_stride apart; int32 loses its upper bits. */
int VTAStoreBuffer2D(uint32_t sram, uint32_t memory, void *destination, uint32_t offset, uint32_t x_size,
                     uint32_t y_size, uint32_t x_stride);

/* Begins one of at most two loops around all micro-ops of an operation, the outer one first. */
int VTAUopLoopBegin(uint32_t extent, uint32_t dst, uint32_t src, uint32_t wgt);
int VTAUopLoopEnd(void);

/* Adds a micro-op. Those of one operation differ only in their indices.
 *
 * mode: 0 for GEMM, 1 for ALU. reset: whether GEMM writes zeros. operation, use_immediate, immediate: of the ALU. */
int VTAUopPush(uint32_t mode, uint32_t reset, uint32_t dst, uint32_t src, uint32_t wgt, uint32_t operation,
               uint32_t use_immediate, int32_t immediate);

/* Queues an operation of the micro-ops added since the last one. */
int VTAPushGEMMOp(void);
int VTAPushALUOp(void);

/* Runs the queued instructions and waits for them. Returns 0, or -1 after a fault since the last call. */
int VTASynchronize(void);

/* Returns the fault before the last VTASynchronize; its rule is NULL if there was none. */
const vta_fault *VTAFault(void);

/* Called by VTASynchronize after a fault. This one does nothing; that of an image stops the program. */
void vta_failed(const vta_fault *fault);

#endif
