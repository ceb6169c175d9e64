/* Turns one channel's sums of some pixels into output; scales: the channel's bias, multiplier, offset, and shift
 * below what is no part of it. */
static inline void scaled_pixels(
    int8_t *output, const int32_t *sums, const int32_t *scales, int32_t channels, int32_t pixels, int32_t low,
    int32_t high)
{
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        const int32_t value = scale_signed(sums[pixel] + scales[0], scales[1], scales[2], scales[3] & 31);
        *output = (int8_t)(value < low ? low : value > high ? high : value);
        output += channels;
    }
}
