#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

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
#elif defined(__ARM_NEON)
    for (; bytes >= 16; bytes -= 16) {
        vst1q_s8(to, vdupq_n_s8((int8_t)value));
        to += 16;
    }
    for (; bytes > 0; --bytes) {
        *to++ = (int8_t)value;
    }
#else
    memset(to, (int)(uint8_t)value, (size_t)bytes);
#endif
}
