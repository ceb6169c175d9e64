/* Turns sums, one per channel, into output; see requantize_columns. */
static inline void requantize_vector(
    int8_t *output, const int32_t *sums, const int32_t *scales, int32_t channels, int32_t low, int32_t high)
{
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t value = scale_sum(sums[channel], scales[0], scales[1], scales[2]);
        output[channel] = (int8_t)(value < low ? low : value > high ? high : value);
        scales += 3;
    }
}
