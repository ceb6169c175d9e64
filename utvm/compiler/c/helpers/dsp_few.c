/* Computes one or two channels of one pixel from its values: no group of four pays for expanding them.
 * stream: biases, weights and scales as dsp_tile has them, form 2: all sums are doubled. No sum may overflow. */
static inline void dsp_few(
    int8_t *output, const int8_t *values, const int32_t *stream, int32_t channels, int32_t length, int32_t low,
    int32_t high)
{
    const int32_t *words = stream + 2;
    const int32_t *const scales = words + (length + 3) / 4 * 4;
    int32_t sums[2] = {stream[0], stream[1]};
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
    const int32_t *const end = words + length / 4 * 4;
    if (words != end) {
        int32_t even, odd, a, b;
        __asm__(
            "1:\n"
            "ldr %[odd], [%[values]], #4\n"
            "ldrd %[a], %[b], [%[words]], #8\n"
            "sxtb16 %[even], %[odd]\n"
            "sxtb16 %[odd], %[odd], ror #8\n"
            "smlad %[first], %[even], %[a], %[first]\n"
            "smlad %[second], %[even], %[b], %[second]\n"
            "ldrd %[a], %[b], [%[words]], #8\n"
            "smlad %[first], %[odd], %[a], %[first]\n"
            "smlad %[second], %[odd], %[b], %[second]\n"
            "cmp %[words], %[end]\n"
            "bne 1b\n"
            : [first] "+&r"(sums[0]), [second] "+&r"(sums[1]), [values] "+&r"(values), [words] "+&r"(words),
              [even] "=&r"(even), [odd] "=&r"(odd), [a] "=&r"(a), [b] "=&r"(b)
            : [end] "r"(end)
            : "cc", "memory");
    }
#endif
    for (int32_t at = (int32_t)(words - stream - 2); at < length; ++at) {
        const uint32_t shift = (uint32_t)(at % 4 / 2) * 16u;
        const int32_t *const word = stream + 2 + at / 4 * 4 + at % 2 * 2;
        const int32_t value = *values++;
        sums[0] += value * (int16_t)((uint32_t)word[0] >> shift & 0xffffu);
        sums[1] += value * (int16_t)((uint32_t)word[1] >> shift & 0xffffu);
    }
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t *const scale = scales + 3 * channel;
        const int32_t value = scale_sum(sums[channel] >> 1, scale[0], scale[1], scale[2]);
        output[channel] = (int8_t)(value < low ? low : value > high ? high : value);
    }
}
