/* SPDX-License-Identifier: Apache-2.0 */
/* A multiplier of matrices, in the tests. */
#ifndef MULTIPLIER_H
#define MULTIPLIER_H

#include <stdint.h>

/* sums[rows][outputs] = x[rows][inputs] times the transpose of weights[outputs][inputs]. */
int32_t multiplier_run(const void *x, const void *weights, void *sums, int32_t rows, int32_t inputs, int32_t outputs);

#endif
