/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that compiled operators make: they queue instructions for VTA, and run them.
 *
 * Each returns 0, or -1 after something went wrong: the first fault is kept, what follows does nothing, and
 * VTASynchronize says so. Addresses within memories on the chip, offsets and sizes count elements of that memory.
 * Which stage waits for which is worked out here, from what each instruction reads and writes on the chip. */
#ifndef VTA_H
#define VTA_H

#include "vta_instruction.h"

/* Says that an operator's loads and stores go to this memory; to be said once a run, before them. Nothing is stored in
 * what is const. */
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

/* Adds a micro-op. All of one operation agree in what is not an index.
 *
 * mode: 0 for GEMM, 1 for ALU. reset: whether GEMM writes zeros. operation, use_immediate, immediate: of the ALU. */
int VTAUopPush(uint32_t mode, uint32_t reset, uint32_t dst, uint32_t src, uint32_t wgt, uint32_t operation,
               uint32_t use_immediate, int32_t immediate);

/* Queues the operation that the micro-ops since the last one make up. */
int VTAPushGEMMOp(void);
int VTAPushALUOp(void);

/* Runs what is queued and waits for it. Returns 0, or -1 if anything went wrong since the last call. */
int VTASynchronize(void);

/* Returns what went wrong before the last VTASynchronize; its rule is NULL if nothing did. */
const vta_fault *VTAFault(void);

/* Called by VTASynchronize after a fault. This one does nothing; an image brings one that stops the program. */
void vta_failed(const vta_fault *fault);

#endif
