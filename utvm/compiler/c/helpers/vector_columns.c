#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Puts rows of bytes side by side: [vector][16 bytes][4 rows]. steps: of the rows, in bytes, from vector to vector. bytes: of
 * each vector, at most 16; the rest may hold anything. The rows are moved on. */
static inline void vector_columns(int8_t *to, const int8_t *rows[4], const int32_t steps[4], int32_t vectors, int32_t bytes)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    const uintptr_t state[5] = {(uintptr_t)to, (uintptr_t)rows, (uintptr_t)steps, (uintptr_t)vectors, (uintptr_t)bytes};
    __asm__ volatile(
        "push {r4-r10, lr}\n"
        "mov r12, %0\n"
        "ldm r12, {r0, r9, r10, r12, lr}\n"
        "vctp.8 lr\n"
        "ldm r9, {r1-r4}\n"
        "ldm r10, {r5-r8}\n"
        "wls lr, r12, 2f\n"
        "1:\n"
        "vpstttt\n"
        "vldrbt.u8 q0, [r1]\n"
        "vldrbt.u8 q1, [r2]\n"
        "vldrbt.u8 q2, [r3]\n"
        "vldrbt.u8 q3, [r4]\n"
        "add r1, r1, r5\n"
        "add r2, r2, r6\n"
        "add r3, r3, r7\n"
        "add r4, r4, r8\n"
        "vst40.8 {q0, q1, q2, q3}, [r0]\n"
        "vst41.8 {q0, q1, q2, q3}, [r0]\n"
        "vst42.8 {q0, q1, q2, q3}, [r0]\n"
        "vst43.8 {q0, q1, q2, q3}, [r0]!\n"
        "le lr, 1b\n"
        "2:\n"
        "stm r9, {r1-r4}\n"
        "pop {r4-r10, lr}\n"
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "lr", "q0", "q1", "q2", "q3", "memory");
#else
    for (int32_t vector = 0; vector < vectors; ++vector) {
        int32_t done = 0;
#if defined(__ARM_NEON)
        if (bytes == 16) {
            int8x16x4_t block;
            for (int32_t row = 0; row < 4; ++row) {
                block.val[row] = vld1q_s8(rows[row]);
            }
            vst4q_s8(to, block);
            done = 16;
        }
#endif
        for (int32_t row = 0; row < 4; ++row) {
            for (int32_t at = done; at < bytes; ++at) {
                to[4 * at + row] = rows[row][at];
            }
            rows[row] += steps[row];
        }
        to += 64;
    }
#endif
}
