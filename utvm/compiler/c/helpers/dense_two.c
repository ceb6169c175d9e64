/* Multiplies one row of values with the weights of one or two channels. words: for each value the weights, the second
 * times 2^16, so that a product with a word is two products, of which two are added in 16 bits. scales: [channels][4]:
 * bias with the input's zero point, multiplier, offset, shift. */
static inline void dense_two(
    int8_t *output, const int8_t *row, int32_t length, const int32_t *words, const int32_t *scales, int32_t channels,
    int32_t low, int32_t high)
{
    const int8_t *const end = row + length / 2 * 2;
    uint32_t even = 0;
    int32_t sums[2] = {0, 0};
    while (row != end) {
        const int32_t both = row[0] * words[0] + row[1] * words[1] + 0x8000;
        even += (uint32_t)both - 0x8000u;
        sums[1] += both >> 16;
        row += 2;
        words += 2;
    }
    if (length % 2 != 0) {
        const int32_t both = row[0] * words[0] + 0x8000;
        even += (uint32_t)both - 0x8000u;
        sums[1] += both >> 16;
    }
    sums[0] = (int32_t)(even - ((uint32_t)sums[1] << 16));
    for (int32_t channel = 0; channel < channels; ++channel) {
        scaled_pixels(output + channel, &sums[channel], scales + 4 * channel, 1, 1, low, high);
    }
}
