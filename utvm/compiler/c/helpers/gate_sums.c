/* Sums of products of values with four rows of weights, those of a unit's gates.
 * weights: for each four values, four weights of each row in turn; zeros behind the last ones. No sum may overflow. */
static inline void gate_sums(int32_t *sums, const int8_t *values, const int8_t *weights, int32_t count)
{
    int32_t first = 0;
    int32_t second = 0;
    int32_t third = 0;
    int32_t fourth = 0;
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
    if (count >= 4) {
        int32_t even, odd, a, b;
        __asm__(
            "1:\n"
            "ldr %[odd], [%[values]], #4\n"
            "ldr %[b], [%[weights]], #4\n"
            "subs %[count], #4\n"
            "sxtb16 %[even], %[odd]\n"
            "sxtb16 %[odd], %[odd], ror #8\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[first], %[even], %[a], %[first]\n"
            "smlad %[first], %[odd], %[b], %[first]\n"
            "ldr %[b], [%[weights]], #4\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[second], %[even], %[a], %[second]\n"
            "smlad %[second], %[odd], %[b], %[second]\n"
            "ldr %[b], [%[weights]], #4\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[third], %[even], %[a], %[third]\n"
            "smlad %[third], %[odd], %[b], %[third]\n"
            "ldr %[b], [%[weights]], #4\n"
            "sxtb16 %[a], %[b]\n"
            "sxtb16 %[b], %[b], ror #8\n"
            "smlad %[fourth], %[even], %[a], %[fourth]\n"
            "smlad %[fourth], %[odd], %[b], %[fourth]\n"
            "cmp %[count], #3\n"
            "bgt 1b\n"
            : [first] "+r"(first), [second] "+r"(second), [third] "+r"(third), [fourth] "+r"(fourth),
              [values] "+r"(values), [weights] "+r"(weights), [count] "+r"(count), [even] "=&r"(even),
              [odd] "=&r"(odd), [a] "=&r"(a), [b] "=&r"(b)
            :
            : "cc", "memory");
    }
#else
    for (; count >= 4; count -= 4) {
        for (int32_t at = 0; at < 4; ++at) {
            const int32_t value = values[at];
            first += value * weights[at];
            second += value * weights[at + 4];
            third += value * weights[at + 8];
            fourth += value * weights[at + 12];
        }
        values += 4;
        weights += 16;
    }
#endif
    for (int32_t at = 0; at < count; ++at) {
        const int32_t value = values[at];
        first += value * weights[at];
        second += value * weights[at + 4];
        third += value * weights[at + 8];
        fourth += value * weights[at + 12];
    }
    sums[0] = first;
    sums[1] = second;
    sums[2] = third;
    sums[3] = fourth;
}
