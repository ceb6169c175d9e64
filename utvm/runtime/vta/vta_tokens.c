/* SPDX-License-Identifier: Apache-2.0 */
#include "vta_tokens.h"

#include <string.h>

/* For each element, the turn in which a stage last wrote or read it; a turn is an instruction's number in its stage. */
static uint32_t inp_written[VTA_INP_DEPTH], inp_read[VTA_INP_DEPTH];
static uint32_t wgt_written[VTA_WGT_DEPTH], wgt_read[VTA_WGT_DEPTH];
static uint32_t acc_written[VTA_ACC_DEPTH], acc_stored[VTA_ACC_DEPTH];

static uint32_t turns[VTA_STAGES];
/* The latest turn of one stage that another has waited for: earlier turns need no token. */
static uint32_t waited[VTA_STAGES][VTA_STAGES];
/* The instruction of a turn. A run is at most as long as the driver's queue. */
static uint32_t numbers[VTA_STAGES][VTA_QUEUE_LENGTH];

void vta_tokens_begin(void) {
  memset(inp_written, 0, sizeof inp_written);
  memset(inp_read, 0, sizeof inp_read);
  memset(wgt_written, 0, sizeof wgt_written);
  memset(wgt_read, 0, sizeof wgt_read);
  memset(acc_written, 0, sizeof acc_written);
  memset(acc_stored, 0, sizeof acc_stored);
  memset(turns, 0, sizeof turns);
  memset(waited, 0, sizeof waited);
}

static uint32_t latest(const uint32_t *of, vta_range range) {
  uint32_t found = 0;
  for (uint32_t i = range.first; i < range.end; i++) {
    found = of[i] > found ? of[i] : found;
  }
  return found;
}

static void note(uint32_t *of, vta_range range, uint32_t turn) {
  for (uint32_t i = range.first; i < range.end; i++) {
    of[i] = turn;
  }
}

/* Makes an instruction of one stage wait for a turn of its neighbour. Called once for each neighbour: there is one
 * token bit for each queue. */
static void wait_for(vta_instruction *queue, uint32_t number, vta_stage stage, vta_stage other, uint32_t turn) {
  if (turn <= waited[other][stage]) {
    return;
  }
  waited[other][stage] = turn;
  vta_instruction *giver = &queue[numbers[other][turn - 1u]];
  if (other < stage) {
    vta_put(giver, VTA_FINISH_PUSH_NEXT, 1u);
    vta_put(&queue[number], VTA_FINISH_POP_PREV, 1u);
  } else {
    vta_put(giver, VTA_FINISH_PUSH_PREV, 1u);
    vta_put(&queue[number], VTA_FINISH_POP_NEXT, 1u);
  }
}

static uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

void vta_tokens_add(vta_instruction *queue, uint32_t number, const vta_touched *touched) {
  const vta_stage stage = vta_stage_of(&queue[number]);
  numbers[stage][turns[stage]] = number;
  const uint32_t turn = ++turns[stage];
  if (stage == VTA_STAGE_LOAD) {
    wait_for(queue, number, stage, VTA_STAGE_COMPUTE,
             larger(latest(inp_read, touched->inp), latest(wgt_read, touched->wgt)));
    note(inp_written, touched->inp, turn);
    note(wgt_written, touched->wgt, turn);
  } else if (stage == VTA_STAGE_COMPUTE) {
    wait_for(queue, number, stage, VTA_STAGE_LOAD,
             larger(latest(inp_written, touched->inp), latest(wgt_written, touched->wgt)));
    wait_for(queue, number, stage, VTA_STAGE_STORE, latest(acc_stored, touched->acc));
    note(inp_read, touched->inp, turn);
    note(wgt_read, touched->wgt, turn);
    note(acc_written, touched->acc, turn);
  } else {
    wait_for(queue, number, stage, VTA_STAGE_COMPUTE, latest(acc_written, touched->acc));
    note(acc_stored, touched->acc, turn);
  }
}

void vta_tokens_finish(vta_instruction *queue, uint32_t number) {
  wait_for(queue, number, VTA_STAGE_COMPUTE, VTA_STAGE_LOAD, turns[VTA_STAGE_LOAD]);
  wait_for(queue, number, VTA_STAGE_COMPUTE, VTA_STAGE_STORE, turns[VTA_STAGE_STORE]);
}
