/* Copies what one output pixel sees of an image, [rows][columns][channels], into window.
 * geometry: height, width, channels of the image; rows, columns of the filter; vertical and horizontal stride and
 * dilation; padding above and on the left; width of the output; the value of what is padded. */
static inline void copy_window(
    int8_t *window, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column)
{
    const int32_t channels = geometry[2];
    const int32_t taps = geometry[4];
    const int32_t dilation = geometry[8];
    const int32_t value = geometry[12];
    int32_t y = row * geometry[5] - geometry[9];
    int32_t x = column * geometry[6] - geometry[10];
    int32_t left = 0;
    int32_t end;
    for (; left < taps && x < 0; ++left) {
        x += dilation;
    }
    end = left;
    for (int32_t place = x; end < taps && place < geometry[1]; ++end) {
        place += dilation;
    }
    const int32_t bytes = dilation == 1 ? (end - left) * channels : channels;
    const int32_t runs = dilation == 1 ? 1 : end - left;
    for (int32_t filter_row = geometry[3]; filter_row > 0; --filter_row) {
        if (y < 0 || y >= geometry[0] || end == left) {
            window = append_value(window, value, taps * channels);
        } else {
            const int8_t *source = image + (y * geometry[1] + x) * channels;
            window = append_value(window, value, left * channels);
            for (int32_t run = 0; run < runs; ++run) {
                window = append_bytes(window, source + run * dilation * channels, bytes);
            }
            window = append_value(window, value, (taps - end) * channels);
        }
        y += geometry[7];
    }
}
