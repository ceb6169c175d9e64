/* requantize for sums that fit 31 bits and a shift to the right of at least one, which the offset is made for. */
static inline int32_t scale_sum(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    const int32_t product = multiply_rounded(sum, multiplier);
    return (product + (product >> 31) + offset) >> shift;
}
