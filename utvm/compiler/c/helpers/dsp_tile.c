/* Computes up to four pixels of a convolution, for an even number of its channels, with the DSP extension.
 * columns: [pairs][4 pixels], two values in a word, the first one lowest. stream: for each two channels their
 * biases, with the input's zero point; a word for each pair with both channels' weights, from the lowest byte upwards
 * those of the first value, then those of the second; then of each channel the multiplier, addend and shift of
 * scale_sum. form 1: a halfword is the first channel's weight plus 256 times the second one's, as is the second bias:
 * the sum of products with whole halfwords, less the first channel's, is 256 times the second one's. form 2: a word for
 * each channel, weights and biases twice as large as they are. unit: 0, or one more than twice the output's zero point if
 * form is not 2 and a bias is packed in a word, times 256, with the shift less one: only multipliers follow. pitch: from one pixel of output to the next. No sum may
 * overflow. */
static inline void dsp_tile(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs, int32_t pixels,
    int32_t pitch, int32_t form, int32_t unit, int32_t low, int32_t high)
{
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t which = channel & 1;
        const int32_t *const weights = stream + 2;
        const int32_t *const scales = weights + (form == 2 ? 2 * pairs : pairs);
        const int32_t bias = unit != 0 ? stream[which] >> 8 : packed_bias(stream, which, form);
        for (int32_t pixel = 0; pixel < pixels; ++pixel) {
            int32_t sum = bias;
            for (int32_t pair = 0; pair < pairs; ++pair) {
                const uint32_t word = (uint32_t)columns[4 * pair + pixel];
                const int32_t at = form == 2 ? 2 * pair + which : pair;
                const uint32_t all = (uint32_t)weights[at];
                sum += (int16_t)(word & 0xffffu) * packed_weight(all & 0xffffu, which, form);
                sum += (int16_t)(word >> 16) * packed_weight(all >> 16, which, form);
            }
            {
                const int32_t *const scale = scales + (unit != 0 ? which : 3 * which);
                const int32_t shift = unit != 0 ? (stream[which] & 31) + 1 : scale[2];
                const int32_t offset = unit != 0 ? (int32_t)((uint32_t)unit << (shift - 1)) : scale[1];
                const int32_t value = scale_sum(form == 2 ? sum / 2 : sum, scale[0], offset, shift);
                output[pixel * pitch] = (int8_t)(value < low ? low : value > high ? high : value);
            }
        }
        ++output;
        if (which == 1) {
            stream = scales + (unit != 0 ? 2 : 6);
        }
    }
}
