/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Called before each step of a library that is compiled for firmware.
 */
#ifndef UTVM_STEP_H
#define UTVM_STEP_H

#include "utvm.h"

/** A library's hook, with the number of the step that begins. */
#define UTVM_STEP(number) utvm_step(number);

/** Note that a step of the running program begins. */
static inline void utvm_step(uint32_t number) {
  utvm_running.step = number;
  if (utvm_profiling) {
    utvm_profile_step(number);
  }
}

#endif
