/* SPDX-License-Identifier: Apache-2.0 */
/* The cycles of each step of a run. */
#include "utvm.h"

#define READINGS 8u /* an interrupt lengthens one of them, hardly all */

volatile bool utvm_profiling;

static uint32_t open_step;
static uint64_t opened;
static uint64_t cost; /* cycles of reading the counter, part of every difference of two readings */

void utvm_profile_end(uint64_t cycles) {
  if (open_step < utvm_step_room) {
    const uint64_t passed = cycles - opened;
    utvm_step_cycles[open_step] += (passed > cost) ? (passed - cost) : 0u;
  }
  open_step = UTVM_NOTHING;
}

void utvm_profile_step(uint32_t number) {
  utvm_profile_end(utvm_cycles());
  open_step = number;
  opened = utvm_cycles();
}

void utvm_profile_begin(void) {
  for (uint32_t step = 0u; step < utvm_step_room; step++) {
    utvm_step_cycles[step] = 0u;
  }
  open_step = UTVM_NOTHING;
  cost = UINT64_MAX;
  for (uint32_t reading = 0u; reading < READINGS; reading++) {
    opened = utvm_cycles();
    const uint64_t passed = utvm_cycles() - opened;
    cost = (passed < cost) ? passed : cost;
  }
  utvm_profiling = true;
}
