/* SPDX-License-Identifier: Apache-2.0 */
/* The model's statistics at each step of a library of VTA_STEPS steps. */
#include "simulator.h"
#include "utvm_step.h"

extern vta_statistics vta_sim_steps[VTA_STEPS + 1];
vta_statistics vta_sim_steps[VTA_STEPS + 1];

void vta_sim_step(uint32_t number) {
    vta_sim_steps[number] = *vta_sim_statistics();
}
