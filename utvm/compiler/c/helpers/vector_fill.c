/* Fills bytes, which may be none. */
static inline void vector_fill(int8_t *to, int32_t value, int32_t bytes)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    __asm__ volatile(
        "vdup.8 q0, %1\n"
        "wlstp.8 lr, %2, 2f\n"
        "1:\n"
        "vstrb.8 q0, [%0], #16\n"
        "letp lr, 1b\n"
        "2:\n"
        : "+r"(to)
        : "r"(value), "r"(bytes)
        : "lr", "q0", "memory");
#else
    memset(to, (int)(uint8_t)value, (size_t)bytes);
#endif
}
