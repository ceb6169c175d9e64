/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The board's clock, to convert cycles to time for clients.
 */
#ifndef UTVM_CLOCK_H
#define UTVM_CLOCK_H

#include <stdint.h>

/** Frequency of the core clock. The build defines UTVM_CLOCK_HZ. */
#define UTVM_CYCLES_PER_MILLISECOND ((uint64_t)UTVM_CLOCK_HZ / 1000u)

#endif
