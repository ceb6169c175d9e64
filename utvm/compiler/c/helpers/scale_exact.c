/* scale_sum for any shift to the right: one of zero rounds only once, and offset is zero then. */
static inline int32_t scale_exact(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    return offset == 0 ? multiply_rounded(sum, multiplier) : scale_sum(sum, multiplier, offset, shift);
}
