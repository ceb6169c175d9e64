/* Computes up to four pixels of a convolution, some of its channels, an even number: what kernels of the DSP extension
 * compute. columns: [pairs][4 pixels], two values in a word, the first one lowest. stream: for each two channels their
 * biases, with the input's zero point; a word for each pair with both channels' weights, from the lowest byte upwards
 * those of the first value, then those of the second (wide: a word for each channel, weights and biases twice as large
 * as they are); then of each channel what scale_sum multiplies by, adds and shifts by. pitch: from one pixel of output to
 * the next. No sum may overflow. */
static inline void dsp_tile(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs, int32_t pixels,
    int32_t pitch, int32_t wide, int32_t low, int32_t high)
{
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t which = channel & 1;
        const int32_t *const weights = stream + 2;
        const int32_t *const scales = weights + (wide != 0 ? 2 * pairs : pairs);
        for (int32_t pixel = 0; pixel < pixels; ++pixel) {
            int32_t sum = stream[which];
            for (int32_t pair = 0; pair < pairs; ++pair) {
                const uint32_t word = (uint32_t)columns[4 * pair + pixel];
                const int32_t first = (int16_t)(word & 0xffffu);
                const int32_t second = (int16_t)(word >> 16);
                if (wide != 0) {
                    const uint32_t both = (uint32_t)weights[2 * pair + which];
                    sum += first * (int16_t)(both & 0xffffu) + second * (int16_t)(both >> 16);
                } else {
                    const uint32_t all = (uint32_t)weights[pair] >> (8 * which);
                    sum += first * (int8_t)(all & 255u) + second * (int8_t)((all >> 16) & 255u);
                }
            }
            {
                const int32_t *const scale = scales + 3 * which;
                const int32_t value = scale_sum(wide != 0 ? sum / 2 : sum, scale[0], scale[1], scale[2]);
                output[pixel * pitch] = (int8_t)(value < low ? low : value > high ? high : value);
            }
        }
        ++output;
        if (which == 1) {
            stream = scales + 6;
        }
    }
}
