/* SPDX-License-Identifier: Apache-2.0 */
/* The multiplier's driver: it reads and writes memory itself, and says when it is done. */
#include "bare_metal.h"
#include "multiplier.h"
#include "utvm.h"

#define REGISTER(number) UTVM_REGISTER(MULTIPLIER_REGISTERS + 4u * (number))
#define CONTROL 6u
#define STATUS 7u
#define START 1u
#define DONE 1u
#define REFUSED 2u
#define PATIENCE 10000u

int32_t multiplier_run(const void *x, const void *weights, void *sums, int32_t rows, int32_t inputs, int32_t outputs) {
    const uintptr_t addresses[3] = {(uintptr_t)x, (uintptr_t)weights, (uintptr_t)sums};
    const int32_t sizes[3] = {rows, inputs, outputs};
    const uint32_t bytes = (uint32_t)(rows * outputs) * sizeof(int32_t);
    uint32_t status = 0;
    utvm_cache_hand_over(x, (uint32_t)(rows * inputs));
    utvm_cache_hand_over(weights, (uint32_t)(outputs * inputs));
    utvm_cache_hand_over(sums, bytes);
    for (uint32_t i = 0; i < 3u; i++) {
        REGISTER(i) = (uint32_t)addresses[i];
        REGISTER(3u + i) = (uint32_t)sizes[i];
    }
    REGISTER(CONTROL) = START;
    for (uint32_t i = 0; i < PATIENCE && status == 0u; i++) {
        status = REGISTER(STATUS);
    }
    if (status != DONE) {
        utvm_assertion_failed("multiplier", 0, status == REFUSED ? "bus error" : "no answer");
    }
    utvm_cache_forget(sums, bytes);
    return 0;
}
