/* Adds two int8 tensors of different scales, as TensorFlow Lite does, from the first element to the last. tables: what
 * each value of the result is in the sum, the lowest first, and each of the other, 256 words each; then multiplier and
 * shift for the sum, which is negative, its zero, lowest and highest value. */
static inline void vector_add(
    int8_t *output, const int8_t *result, const int8_t *other, const int32_t *tables, int32_t count)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    const int32_t *const first = tables + 128;
    const int32_t *const second = tables + 384;
    const uintptr_t state[4] = {(uintptr_t)output, (uintptr_t)result, (uintptr_t)other, (uintptr_t)(tables + 512)};
    __asm__ volatile(
        "ldr lr, [%2, #12]\n"
        "ldrd r0, r1, [lr]\n"
        "ldrd r2, r3, [lr, #8]\n"
        "ldr r12, [lr, #16]\n"
        "vdup.32 q2, r3\n"
        "vdup.32 q3, r12\n"
        "vdup.32 q4, r1\n"
        "mov r12, r0\n"
        "ldrd r0, r1, [%2]\n"
        "ldr r3, [%2, #8]\n"
        "wlstp.32 lr, %3, 2f\n"
        "1:\n"
        "vldrb.s32 q0, [r1], #4\n"
        "vldrb.s32 q1, [r3], #4\n"
        "vldrw.u32 q5, [%0, q0, uxtw #2]\n"
        "vldrw.u32 q6, [%1, q1, uxtw #2]\n"
        "vadd.i32 q0, q5, q6\n"
        "vqrdmulh.s32 q0, q0, r12\n"
        "vshr.s32 q1, q0, #31\n"
        "vqadd.s32 q0, q0, q1\n"
        "vrshl.s32 q0, q0, q4\n"
        "vadd.i32 q0, q0, r2\n"
        "vmax.s32 q0, q0, q2\n"
        "vmin.s32 q0, q0, q3\n"
        "vstrb.32 q0, [r0], #4\n"
        "letp lr, 1b\n"
        "2:\n"
        :
        : "r"(first), "r"(second), "r"(state), "r"(count)
        : "r0", "r1", "r2", "r3", "r12", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "memory");
#else
    const int32_t *const last = tables + 512;
    for (int32_t each = 0; each < count; ++each) {
        const int32_t sum = tables[result[each] + 128] + tables[other[each] + 384];
        const int32_t value = requantize(sum, last[0], last[1]) + last[2];
        output[each] = (int8_t)(value < last[3] ? last[3] : value > last[4] ? last[4] : value);
    }
#endif
}
