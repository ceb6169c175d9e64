/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UTVM_STEP_H
#define UTVM_STEP_H

#include <stdint.h>

/** Record the model's statistics before step `number` of a library, or at its end. */
void vta_sim_step(uint32_t number);

#define UTVM_STEP(number) vta_sim_step(number);

#endif
