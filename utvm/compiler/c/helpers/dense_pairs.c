/* Multiplies one row of values with the weights of four channels at a time, two with each multiplication. words: as
 * dense_sums reads them, of a multiple of four values. scales: [channels][4]: bias with the input's zero point,
 * multiplier, offset, shift. values: two words for each value. */
static inline void dense_pairs(
    int8_t *output, const int8_t *row, int32_t length, const int32_t *words, const int32_t *scales, int32_t channels,
    int32_t low, int32_t high, int32_t *values)
{
    const int32_t *const end = expand_pairs(values, row, length);
    const int32_t padded = (length + 3) / 4 * 4;
    const uint32_t added = (uint32_t)padded << 14;
    for (; channels > 0; channels -= 4) {
        uint32_t sums[4];
        dense_sums(sums, values, end, words);
        sums[0] -= (sums[2] << 16) + added;
        sums[1] -= (sums[3] << 16) + added;
        for (int32_t channel = 0; channel < 4 && channel < channels; ++channel) {
            const int32_t sum = (int32_t)sums[channel];
            scaled_pixels(output, &sum, scales, 1, 1, low, high);
            ++output;
            scales += 4;
        }
        words += padded;
    }
}
