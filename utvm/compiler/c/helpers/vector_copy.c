/* Copies bytes, which may be none. */
static inline void vector_copy(int8_t *to, const int8_t *from, int32_t bytes)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    __asm__ volatile(
        "wlstp.8 lr, %2, 2f\n"
        "1:\n"
        "vldrb.u8 q0, [%1], #16\n"
        "vstrb.8 q0, [%0], #16\n"
        "letp lr, 1b\n"
        "2:\n"
        : "+r"(to), "+r"(from)
        : "r"(bytes)
        : "lr", "q0", "memory");
#else
    memcpy(to, from, (size_t)bytes);
#endif
}
