/* scale_folded where results below the zero point count: halves go away from it. */
static inline int32_t scale_signed(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    const int32_t product = multiply_upper(sum * 4, multiplier);
    return (product + 2 * ((product + 1) >> 31) + offset) >> shift;
}
