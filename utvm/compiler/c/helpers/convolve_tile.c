/* Computes up to four pixels of a convolution's output, all channels of each, the first pixel at row and column.
 * geometry as pack_window has it. columns is scratch: 2 words for each value of a window, rounded up to 8. The other
 * parameters are those of packed_channels. All is read before anything is written. */
static inline void convolve_tile(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *columns, int32_t row, int32_t column,
    int32_t pixels, const int8_t *weights, int32_t length, const int32_t *scales, int32_t channels, int32_t low,
    int32_t high, int32_t zero)
{
    int32_t next = 1;
    if (pixels == 1) {
        next = 0;
    }
    pack_windows(columns, image, geometry, row, column, next);
    if (pixels > 2) {
        column += 2;
        for (int32_t lines = 0; lines < 2 && column >= geometry[11]; ++lines) {
            column -= geometry[11];
            ++row;
        }
    }
    if (pixels == 3) {
        next = 0;
    }
    pack_windows(columns + 1, image, geometry, row, column, next);
    packed_channels(output, columns, weights, length, scales, channels, pixels, low, high, zero);
}
