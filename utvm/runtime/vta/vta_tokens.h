/* SPDX-License-Identifier: Apache-2.0 */
/* Which stage waits for which: worked out from the elements that each instruction reads and writes on the chip. */
#ifndef VTA_TOKENS_H
#define VTA_TOKENS_H

#include "vta_instruction.h"

/* Elements first..end-1 of a memory. */
typedef struct {
  uint32_t first;
  uint32_t end;
} vta_range;

/* What one instruction touches; an empty range is nothing. */
typedef struct {
  vta_range inp;
  vta_range wgt;
  vta_range acc;
} vta_touched;

/* Forgets everything: a run begins. */
void vta_tokens_begin(void);

/* Has an instruction, the last of the queue, wait for what it needs.
 *
 * queue: all instructions of the run; those that are waited for get their token to hand on.
 * number: of the instruction.
 * touched: what it reads or writes: load writes, compute reads inp and wgt and writes acc, store reads acc. */
void vta_tokens_add(vta_instruction *queue, uint32_t number, const vta_touched *touched);

/* Has the last instruction, FINISH, wait for the last load and the last store. */
void vta_tokens_finish(vta_instruction *queue, uint32_t number);

#endif
