/* requantize for sums that fit 31 bits and a shift to the right of at least one, which the offset is made for. */
static inline int32_t scale_sum(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    /* The product is below zero if the sum is, or it is zero, which the offset rounds up again. */
    const int32_t added = (sum >> 31) + offset;
#if defined(__ARM_FEATURE_DSP)
    int32_t value;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(value) : "r"(2 * sum), "r"(multiplier), "r"(added));
    return value >> shift;
#else
    return ((int32_t)(((int64_t)sum * multiplier + ((int64_t)1 << 30)) >> 31) + added) >> shift;
#endif
}
