/* SPDX-License-Identifier: Apache-2.0 */
/* A software model of VTA: what Python reads of it, and what its files share. It stands behind vta_device.h. */
#ifndef VTA_SIMULATOR_H
#define VTA_SIMULATOR_H

#include <stddef.h>

#include "vta_instruction.h"

/* Since they were last cleared. The first seven are those of TVM's own simulator: loads count bytes on the chip,
 * without padding. Cycles are modelled. */
typedef struct {
  uint64_t inp_load_nbytes;
  uint64_t wgt_load_nbytes;
  uint64_t acc_load_nbytes;
  uint64_t uop_load_nbytes;
  uint64_t out_store_nbytes;
  uint64_t gemm_counter;
  uint64_t alu_counter;
  uint64_t instructions;
  uint64_t dram_nbytes; /* bytes that crossed the bus, without instructions */
  uint64_t cycles;      /* from the first instruction to the last */
  uint64_t busy[VTA_STAGES];
  uint64_t tokens; /* that stages handed on */
} vta_statistics;

/* What one instruction of the last run did when, in modelled cycles. */
typedef struct {
  uint64_t ready; /* its stage was done with the one before */
  uint64_t start; /* it had its tokens */
  uint64_t end;
  vta_instruction instruction;
} vta_event;

/* Returns the statistics; they stay where they are. */
vta_statistics *vta_sim_statistics(void);

/* Has the stages looked after in another order: 0, 1 or 2 is the one that goes first. No result may depend on it. */
void vta_sim_first_stage(uint32_t stage);

/* Returns what the last run did, in the order of its instructions, and how many there were. */
const vta_event *vta_sim_events(uint32_t *count);

/* Returns where bytes of DRAM are in this process, or NULL if they are in no memory. */
typedef void *vta_reach(uint64_t address, size_t bytes);

/* Has DRAM be that of a board, which is reached through this; the mapped buffers of this process where it is NULL. */
void vta_sim_dram_is(vta_reach *reach);

/* Returns where DRAM for a memory on the chip is in this process, or NULL if not all of these bytes are in one buffer.
 *
 * from: in bytes, behind where the memory's elements are counted from. */
void *vta_sim_dram(uint32_t memory, uint64_t from, size_t bytes);

/* What executing an instruction came to. */
typedef struct {
  uint64_t cycles;
  const char *rule; /* that was broken, or NULL */
  int64_t value;
  int64_t limit;
} vta_outcome;

/* Executes an instruction whose turn it is, all but FINISH, and counts it. */
vta_outcome vta_sim_execute(const vta_instruction *instruction, vta_statistics *counted);

#endif
