/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which stage must wait for which, from the elements that instructions read and write on the chip. */
#ifndef VTA_TOKENS_H
#define VTA_TOKENS_H

#include "vta_instruction.h"

/* Elements first..end-1 of a memory. */
typedef struct {
  uint32_t first;
  uint32_t end;
} vta_range;

/* The elements that one instruction accesses; ranges may be empty. */
typedef struct {
  vta_range inp;
  vta_range wgt;
  vta_range acc;
} vta_touched;

/* Clears all state, at the start of a run. */
void vta_tokens_begin(void);

/* Makes the last instruction of the queue wait for those that it depends on.
 *
 * queue: all instructions of the run; those that are waited for get a bit to pass a token.
 * number: of the instruction.
 * touched: the elements it reads or writes: load writes, compute reads inp and wgt and writes acc, store reads acc. */
void vta_tokens_add(vta_instruction *queue, uint32_t number, const vta_touched *touched);

/* Makes the last instruction, FINISH, wait for the last load and the last store. */
void vta_tokens_finish(vta_instruction *queue, uint32_t number);

#endif
