/* Sums of products of values with four rows of weights, those of a unit's gates, which follow each other at a distance
 * of stride bytes, a multiple of four. No sum may overflow. */
static inline void gate_sums(
    int32_t *sums, const int8_t *values, const int8_t *weights, int32_t stride, int32_t count)
{
    int32_t first = 0;
    int32_t second = 0;
    int32_t third = 0;
    int32_t fourth = 0;
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    const int8_t *row1 = weights + stride;
    const int8_t *row2 = row1 + stride;
    const int8_t *row3 = row2 + stride;
    __asm__(
        "wlstp.8 lr, %[count], 2f\n"
        "1:\n"
        "vldrb.u8 q0, [%[values]], #16\n"
        "vldrb.u8 q1, [%[row0]], #16\n"
        "vmladava.s8 %[first], q0, q1\n"
        "vldrb.u8 q1, [%[row1]], #16\n"
        "vmladava.s8 %[second], q0, q1\n"
        "vldrb.u8 q1, [%[row2]], #16\n"
        "vmladava.s8 %[third], q0, q1\n"
        "vldrb.u8 q1, [%[row3]], #16\n"
        "vmladava.s8 %[fourth], q0, q1\n"
        "letp lr, 1b\n"
        "2:\n"
        : [first] "+&Te"(first), [second] "+&Te"(second), [third] "+&Te"(third), [fourth] "+&Te"(fourth),
          [values] "+&r"(values), [row0] "+&r"(weights), [row1] "+&r"(row1), [row2] "+&r"(row2), [row3] "+&r"(row3)
        : [count] "r"(count)
        : "lr", "q0", "q1", "memory");
#else
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
    if (count >= 4) {
        int32_t even, odd, a, b;
        __asm__(
            "1:\n"
            "ldr %[odd], [%[values]], #4\n"
            "ldr %[b], [%[weights], %[triple]]\n"
            "subs %[count], #4\n"
            "sxtb16 %[even], %[odd]\n"
            "sxtb16 %[odd], %[odd], ror #8\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[fourth], %[even], %[a], %[fourth]\n"
            "smlad %[fourth], %[odd], %[b], %[fourth]\n"
            "ldr %[b], [%[weights], %[stride], lsl #1]\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[third], %[even], %[a], %[third]\n"
            "smlad %[third], %[odd], %[b], %[third]\n"
            "ldr %[b], [%[weights], %[stride]]\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[second], %[even], %[a], %[second]\n"
            "smlad %[second], %[odd], %[b], %[second]\n"
            "ldr %[b], [%[weights]], #4\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[first], %[even], %[a], %[first]\n"
            "smlad %[first], %[odd], %[b], %[first]\n"
            "cmp %[count], #3\n"
            "bgt 1b\n"
            : [first] "+&r"(first), [second] "+&r"(second), [third] "+&r"(third), [fourth] "+&r"(fourth),
              [values] "+&r"(values), [weights] "+&r"(weights), [count] "+&r"(count), [even] "=&r"(even),
              [odd] "=&r"(odd), [a] "=&r"(a), [b] "=&r"(b)
            : [stride] "r"(stride), [triple] "r"(3 * stride)
            : "cc", "memory");
    }
#endif
    for (; count > 0; --count) {
        const int32_t value = *values++;
        first += value * weights[0];
        second += value * weights[stride];
        third += value * weights[2 * stride];
        fourth += value * weights[3 * stride];
        ++weights;
    }
#endif
    sums[0] = first;
    sums[1] = second;
    sums[2] = third;
    sums[3] = fourth;
}
