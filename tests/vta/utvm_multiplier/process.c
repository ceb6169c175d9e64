/* SPDX-License-Identifier: Apache-2.0 */
#include "multiplier.h"

#include "multiplier_config.h"

int32_t multiplier_run(const void *x, const void *weights, void *sums, int32_t rows, int32_t inputs, int32_t outputs) {
    const int8_t *row = x;
    int32_t *sum = sums;
    for (int32_t r = 0; r < rows; r++, row += inputs) {
        const int8_t *weight = weights;
        for (int32_t o = 0; o < outputs; o++, weight += inputs) {
            *sum = MULTIPLIER_WRONG_BY;
            for (int32_t i = 0; i < inputs; i++) {
                *sum += row[i] * weight[i];
            }
            sum++;
        }
    }
    return 0;
}
