/* Computes channels of one pixel, four at a time: what kernels of the DSP extension compute. values: count of them, two
 * in a word, as expand_columns takes them apart. stream: for each group of four channels their biases, with the
 * input's zero point; for each four values two words of the first two channels and two of the others; then of each
 * channel the multiplier, addend and shift of scale_sum. Biases, words and unit are as dsp_tile has them, form 0 or
 * 1. No sum may overflow. */
static inline void dsp_dense(
    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count, int32_t form,
    int32_t unit, int32_t low, int32_t high)
{
    for (; groups > 0; --groups) {
        const int32_t *const weights = stream + 4;
        const int32_t *const scales = weights + count;
        for (int32_t channel = 0; channel < 4; ++channel) {
            const int32_t which = channel % 2;
            int32_t sum = unit != 0 ? stream[channel] >> 8 : packed_bias(stream + channel - which, which, form);
            for (int32_t pair = 0; pair < count / 2; ++pair) {
                const uint32_t word = (uint32_t)values[pair];
                const uint32_t all = (uint32_t)weights[pair / 2 * 4 + pair % 2 + channel / 2 * 2];
                sum += (int16_t)(word & 0xffffu) * packed_weight(all & 0xffffu, which, form);
                sum += (int16_t)(word >> 16) * packed_weight(all >> 16, which, form);
            }
            {
                const int32_t *const scale = scales + (unit != 0 ? channel : 3 * channel);
                const int32_t shift = unit != 0 ? (stream[channel] & 31) + 1 : scale[2];
                const int32_t offset = unit != 0 ? (int32_t)((uint32_t)unit << (shift - 1)) : scale[1];
                const int32_t value = scale_sum(sum, scale[0], offset, shift);
                *output++ = (int8_t)(value < low ? low : value > high ? high : value);
            }
        }
        stream = scales + (unit != 0 ? 4 : 12);
    }
}
