/* Computes up to four pixels of a convolution's output, all channels of each, the first pixel at row and column.
 * geometry as copy_window has it. columns and window are scratch: 2 words and 2 bytes for each value of a window,
 * rounded up to 16; weights have zeros behind as many. The other parameters are those of packed_channels. All is read
 * before anything is written. */
static inline void convolve_tile(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *columns, int8_t *window, int32_t row,
    int32_t column, int32_t pixels, const int8_t *weights, const int32_t *scales, int32_t channels, int32_t low,
    int32_t high, int32_t zero)
{
    const int32_t length = (geometry[2] * geometry[3] * geometry[4] + 15) & ~15;
    if (pixels == 1) {
        copy_window(window, image, geometry, row, column);
        for (int32_t channel = 0; channel < channels; ++channel) {
            const int32_t sum = dot_bytes(window, weights, length);
            scaled_pixels(output + channel, &sum, scales, channels, 1, low, high);
            weights += length;
            scales += 4;
        }
        return;
    }
    pack_windows(columns, image, geometry, window, length, row, column, 1);
    column += 2;
    for (int32_t lines = 0; lines < 2 && column >= geometry[11]; ++lines) {
        column -= geometry[11];
        ++row;
    }
    if (pixels > 2) {
        pack_windows(columns + 1, image, geometry, window, length, row, column, pixels - 3);
    }
    packed_channels(output, columns, weights, length, scales, channels, pixels, low, high, zero);
}
