/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The board's clock, as clients speak of time.
 */
#ifndef UTVM_CLOCK_H
#define UTVM_CLOCK_H

#include <stdint.h>

/** Of the core clock. The build defines UTVM_CLOCK_HZ. */
#define UTVM_CYCLES_PER_MILLISECOND ((uint64_t)UTVM_CLOCK_HZ / 1000u)

#endif
