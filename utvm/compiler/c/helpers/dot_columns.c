#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
/* One pair of k: two channels' weights out of one word, four pixels, eight sums in r4 to r11. */
#define DOT_PAIR \
    "ldr r3, [r1], #4\n" \
    "ldrd r12, lr, [r0], #8\n" \
    "sxtb16 r2, r3\n" \
    "sxtb16 r3, r3, ror #8\n" \
    "smlad r4, r12, r2, r4\n" \
    "smlad r8, r12, r3, r8\n" \
    "smlad r5, lr, r2, r5\n" \
    "smlad r9, lr, r3, r9\n" \
    "ldrd r12, lr, [r0], #8\n" \
    "smlad r6, r12, r2, r6\n" \
    "smlad r10, r12, r3, r10\n" \
    "smlad r7, lr, r2, r7\n" \
    "smlad r11, lr, r3, r11\n"
#define DOT_PAIR_BYTES 52
#define DOT_UNROLLED 8
#endif

/* Adds the products of four pixels' columns and all channels' weights: sums[o][p] += sum of weights * columns.
 * columns: int16 [pairs][4 pixels][2]. weights: a word for two channels and a pair of k: from the lowest byte
 * upwards (o, k), (o + 1, k), (o, k + 1), (o + 1, k + 1). channels is even. No sum may overflow. */
static inline void dot_columns(
    int32_t *sums, const int16_t *columns, const int32_t *weights, int32_t channels, int32_t pairs)
{
#if defined(DOT_PAIR)
    /* The loop needs every register but the stack pointer. What it rarely needs waits on the stack: the columns, how
     * much of the unrolled loop its first round leaves out, the columns' end, the sums' end. The compiler keeps none
     * of r0 to r3 and r12; the others are put back. */
    const uint32_t skipped = (uint32_t)(-pairs & (DOT_UNROLLED - 1)) * DOT_PAIR_BYTES;
    const uintptr_t state[6] = {
        (uintptr_t)columns, skipped, (uintptr_t)(columns + 8 * pairs), (uintptr_t)(sums + 4 * channels),
        (uintptr_t)sums, (uintptr_t)weights};
    __asm__ volatile(
        "push {r4-r11, lr}\n"
        "ldm %0, {r0-r5}\n"
        "push {r0-r4}\n"
        "mov r1, r5\n"
        "1:\n"
        "ldr r2, [sp, #16]\n"
        "ldm r2, {r4-r11}\n"
        "ldrd r0, r2, [sp]\n"
        "add pc, r2\n"
        "nop\n"
        "2:\n"
        DOT_PAIR DOT_PAIR DOT_PAIR DOT_PAIR DOT_PAIR DOT_PAIR DOT_PAIR DOT_PAIR
        "ldr r2, [sp, #8]\n"
        "cmp r0, r2\n"
        "bne 2b\n"
        "ldrd r3, r2, [sp, #12]\n"
        "stm r2!, {r4-r11}\n"
        "str r2, [sp, #16]\n"
        "cmp r2, r3\n"
        "bne 1b\n"
        "add sp, #20\n"
        "pop {r4-r11, lr}\n"
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
#else
    for (int32_t channel = 0; channel < channels; channel += 2) {
        for (int32_t pair = 0; pair < pairs; ++pair) {
            const uint32_t word = (uint32_t)weights[pair];
            for (int32_t pixel = 0; pixel < 4; ++pixel) {
                const int32_t even = columns[8 * pair + 2 * pixel];
                const int32_t odd = columns[8 * pair + 2 * pixel + 1];
                sums[pixel] += even * (int8_t)(word & 255u) + odd * (int8_t)((word >> 16) & 255u);
                sums[4 + pixel] += even * (int8_t)((word >> 8) & 255u) + odd * (int8_t)(word >> 24);
            }
        }
        sums += 8;
        weights += pairs;
    }
#endif
}
