/* sum * multiplier / 2^31, to the nearest, halves upwards. sum fits 31 bits. */
static inline int32_t multiply_rounded(int32_t sum, int32_t multiplier)
{
#if defined(__ARM_FEATURE_DSP)
    int32_t product;
    __asm__("smmulr %0, %1, %2" : "=r"(product) : "r"(2 * sum), "r"(multiplier));
    return product;
#else
    return (int32_t)(((int64_t)sum * multiplier + ((int64_t)1 << 30)) >> 31);
#endif
}
