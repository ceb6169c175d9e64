/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. Long division, one bit after the other. */
#include "binary64.h"

#define FRACTION_BITS 52u
#define BIAS 1023

uint64_t utvm_binary64_ratio(uint64_t numerator, uint64_t denominator) {
  uint64_t rest = numerator;
  uint64_t divisor = denominator;
  uint64_t bits = 0u;
  if (rest > 0u) {
    int32_t exponent = BIAS;
    uint64_t quotient = 1u;
    while (rest >= (2u * divisor)) {
      divisor *= 2u;
      exponent++;
    }
    while (rest < divisor) {
      rest *= 2u;
      exponent--;
    }
    rest -= divisor;
    /* One bit more than there is room for: it decides which way to round. */
    for (uint32_t bit = 0u; bit <= FRACTION_BITS; bit++) {
      rest *= 2u;
      quotient *= 2u;
      if (rest >= divisor) {
        rest -= divisor;
        quotient++;
      }
    }
    quotient = (quotient + 1u) / 2u;
    /* The leading one is not stored; where rounding has carried beyond it, the exponent takes the carry. */
    bits = ((uint64_t)exponent << FRACTION_BITS) + (quotient - ((uint64_t)1u << FRACTION_BITS));
  }
  return bits;
}
