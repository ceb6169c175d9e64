/* Adds the products of two pairs of halfwords. */
static inline int32_t {{ name }}(int32_t sum, uint32_t values, uint32_t weights)
{
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(values), "r"(weights));
    return sum;
#else
    const int32_t first = (int16_t)(weights & 0xffffu);
    const int32_t second = (int16_t)(weights >> 16);
    return sum + (int16_t)(values & 0xffffu) * first + (int16_t)(values >> 16) * second;
#endif
}
