/* Multiplies one row of values with each channel's row of weights. scales: [channels][4]: bias with the input's zero
 * point, multiplier, offset, shift. */
static inline void dense_channels(
    int8_t *output, const int8_t *values, int32_t length, const int8_t *weights, const int32_t *scales,
    int32_t channels, int32_t low, int32_t high)
{
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t sum = dot_bytes(values, weights, length);
        scaled_pixels(output + channel, &sum, scales, channels, 1, low, high);
        weights += length;
        scales += 4;
    }
}
