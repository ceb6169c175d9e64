/* SPDX-License-Identifier: Apache-2.0 */
/* A software model of VTA behind vta_device.h: its interface for Python and among its files. */
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
  uint64_t tokens; /* passed between stages */
} vta_statistics;

/* An instruction of the last run; times are modelled cycles. */
typedef struct {
  uint64_t ready; /* end of the stage's previous instruction */
  uint64_t start; /* its tokens were available */
  uint64_t end;
  vta_instruction instruction;
} vta_event;

/* Returns the statistics, at a constant address. */
vta_statistics *vta_sim_statistics(void);

/* Sets the stage that runs first (0, 1 or 2). Results must not depend on it. */
void vta_sim_first_stage(uint32_t stage);

/* Returns the instructions of the last run, in order, and their number. */
const vta_event *vta_sim_events(uint32_t *count);

/* Returns where bytes of DRAM are in this process, or NULL if they are in no memory. */
typedef void *vta_reach(uint64_t address, size_t bytes);

/* Uses a board's DRAM through a function; NULL: the mapped buffers of this process. */
void vta_sim_dram_is(vta_reach *reach);

/* Returns where DRAM for a memory on the chip is in this process, or NULL if not all of these bytes are in one buffer.
 *
 * from: in bytes, behind where the memory's elements are counted from. */
void *vta_sim_dram(uint32_t memory, uint64_t from, size_t bytes);

/* Result of an instruction. */
typedef struct {
  uint64_t cycles;
  const char *rule; /* that the instruction breaks, or NULL */
  int64_t value;
  int64_t limit;
} vta_outcome;

/* Executes and counts an instruction other than FINISH. */
vta_outcome vta_sim_execute(const vta_instruction *instruction, vta_statistics *counted);

#endif
