/* The cycles of each step of a run. */
#include "utvm.h"

volatile bool utvm_profiling;

static uint32_t open_step;
static uint64_t opened;
static uint64_t cost; /* cycles of reading the counter, which is in every difference of two readings */

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

int32_t utvm_profile(uint32_t program) {
  for (uint32_t step = 0u; step < utvm_step_room; step++) {
    utvm_step_cycles[step] = 0u;
  }
  open_step = UTVM_NOTHING;
  opened = utvm_cycles();
  cost = utvm_cycles() - opened;
  utvm_profiling = true;
  const int32_t status = utvm_run(program);
  utvm_profiling = false;
  return status;
}
