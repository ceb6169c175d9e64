/* Turns the sums of up to four pixels, int32 [channels][4], into output [pixels][channels] of int8.
 * scales: [channels][3]: multiplier, what is added before the shift (half of what the shift drops, and the output's
 * zero point, shifted), shift to the right. Rounds as requantize does; twice each sum must fit 32 bits. */
static inline void requantize_columns(
    int8_t *output, const int32_t *sums, const int32_t *scales, int32_t channels, int32_t pixels, int32_t low,
    int32_t high)
{
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t multiplier = scales[0];
        const int32_t offset = scales[1];
        const int32_t shift = scales[2];
        scales += 3;
        if (pixels == 4 && low == INT8_MIN && high == INT8_MAX) {
            output[0] = (int8_t)saturate_int8(scale_sum(sums[0], multiplier, offset, shift));
            output[channels] = (int8_t)saturate_int8(scale_sum(sums[1], multiplier, offset, shift));
            output[2 * channels] = (int8_t)saturate_int8(scale_sum(sums[2], multiplier, offset, shift));
            output[3 * channels] = (int8_t)saturate_int8(scale_sum(sums[3], multiplier, offset, shift));
        } else {
            for (int32_t pixel = 0; pixel < pixels; ++pixel) {
                const int32_t value = scale_sum(sums[pixel], multiplier, offset, shift);
                output[pixel * channels] = (int8_t)(value < low ? low : value > high ? high : value);
            }
        }
        sums += 4;
        ++output;
    }
}
