/* a * b / 2^32, rounded down. a lies within 2^30, b is not negative. */
static inline int32_t multiply_upper(int32_t a, int32_t b)
{
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1
    /* The core has products of 32 bits only. */
    const uint32_t a_low = (uint32_t)a & 0xffffu;
    const uint32_t b_low = (uint32_t)b & 0xffffu;
    const uint32_t b_high = (uint32_t)b >> 16;
    const int32_t a_high = a >> 16;
    const uint32_t carried = a_low * b_high + (a_low * b_low >> 16);
    /* Both lie within 2^30 when a half of the first's range is taken off. */
    const int32_t middle = (int32_t)(carried - 0x40000000u) + a_high * (int32_t)b_low;
    return a_high * (int32_t)b_high + (middle >> 16) + 0x4000;
#else
    return (int32_t)(((int64_t)a * b) >> 32);
#endif
}
