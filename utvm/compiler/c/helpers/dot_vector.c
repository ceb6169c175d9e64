/* Adds the products of one vector and all channels' weights: sums[o] += sum of weights * values.
 * count is a multiple of four, channels is even. weights are arranged as dot_columns says, the pairs of each four
 * values as expand_columns makes them. No sum may overflow. */
static inline void dot_vector(
    int32_t *sums, const int8_t *values, const int32_t *weights, int32_t channels, int32_t count)
{
    for (int32_t channel = 0; channel < channels; channel += 2) {
        int32_t first = sums[channel];
        int32_t second = sums[channel + 1];
        for (int32_t k = 0; k < count; k += 4) {
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
            uint32_t even, odd, low, high;
            const uint32_t word = load_word(values + k);
            __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(word));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
            __asm__("sxtb16 %0, %1" : "=r"(low) : "r"(weights[0]));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(high) : "r"(weights[0]));
            __asm__("smlad %0, %1, %2, %0" : "+r"(first) : "r"(even), "r"(low));
            __asm__("smlad %0, %1, %2, %0" : "+r"(second) : "r"(even), "r"(high));
            __asm__("sxtb16 %0, %1" : "=r"(low) : "r"(weights[1]));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(high) : "r"(weights[1]));
            __asm__("smlad %0, %1, %2, %0" : "+r"(first) : "r"(odd), "r"(low));
            __asm__("smlad %0, %1, %2, %0" : "+r"(second) : "r"(odd), "r"(high));
#else
            for (int32_t pair = 0; pair < 2; ++pair) {
                const uint32_t word = (uint32_t)weights[pair];
                const int32_t even = values[k + pair];
                const int32_t odd = values[k + pair + 2];
                first += even * (int8_t)(word & 255u) + odd * (int8_t)((word >> 16) & 255u);
                second += even * (int8_t)((word >> 8) & 255u) + odd * (int8_t)(word >> 24);
            }
#endif
            weights += 2;
        }
        sums[channel] = first;
        sums[channel + 1] = second;
    }
}
