#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

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
#elif defined(__ARM_NEON)
    for (; bytes >= 16; bytes -= 16) {
        vst1q_s8(to, vld1q_s8(from));
        to += 16;
        from += 16;
    }
    for (; bytes > 0; --bytes) {
        *to++ = *from++;
    }
#else
    memcpy(to, from, (size_t)bytes);
#endif
}
