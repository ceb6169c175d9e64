#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Puts rows of bytes side by side: [byte][4 rows]. Behind them, the rest of 16 bytes of each row may be written over. */
static inline void vector_columns(int8_t *to, const int8_t *const rows[4], int32_t bytes)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    __asm__ volatile(
        "push {r4}\n"
        "mov r12, %1\n"
        "mov lr, %2\n"
        "mov r0, %0\n"
        "ldrd r1, r2, [r12]\n"
        "ldrd r3, r4, [r12, #8]\n"
        "1:\n"
        "vctp.8 lr\n"
        "vpstttt\n"
        "vldrbt.u8 q0, [r1], #16\n"
        "vldrbt.u8 q1, [r2], #16\n"
        "vldrbt.u8 q2, [r3], #16\n"
        "vldrbt.u8 q3, [r4], #16\n"
        "vst40.8 {q0, q1, q2, q3}, [r0]\n"
        "vst41.8 {q0, q1, q2, q3}, [r0]\n"
        "vst42.8 {q0, q1, q2, q3}, [r0]\n"
        "vst43.8 {q0, q1, q2, q3}, [r0]!\n"
        "subs lr, lr, #16\n"
        "bgt 1b\n"
        "pop {r4}\n"
        :
        : "r"(to), "r"(rows), "r"(bytes)
        : "r0", "r1", "r2", "r3", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory");
#else
    int32_t at = 0;
#if defined(__ARM_NEON)
    for (; at + 16 <= bytes; at += 16) {
        int8x16x4_t block;
        for (int32_t row = 0; row < 4; ++row) {
            block.val[row] = vld1q_s8(rows[row] + at);
        }
        vst4q_s8(to, block);
        to += 64;
    }
#endif
    for (; at < bytes; ++at) {
        for (int32_t row = 0; row < 4; ++row) {
            *to++ = rows[row][at];
        }
    }
#endif
}
