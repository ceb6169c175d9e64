/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Numbers in IEEE 754's binary64 format, made with integers: the compiler's arithmetic for double would take more
 * flash than the rest of an evaluator.
 */
#ifndef UTVM_BINARY64_H
#define UTVM_BINARY64_H

#include <stdint.h>

/**
 * Divide two integers.
 *
 * @param numerator    less than 2^62
 * @param denominator  from 1 to 2^61
 * @return the bits of the nearest binary64 number; the upper one of two that are equally near
 */
uint64_t utvm_binary64_ratio(uint64_t numerator, uint64_t denominator);

#endif
