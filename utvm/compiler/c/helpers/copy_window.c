/* Copies what one output pixel sees of an image, [rows][columns][channels], into window.
 * geometry: height, width, channels of the image; rows, columns of the filter; vertical and horizontal stride and
 * dilation; padding above and on the left; width of the output; the value of what is padded. */
static inline void copy_window(
    int8_t *window, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column)
{
    const int32_t width = geometry[1];
    const int32_t channels = geometry[2];
    const int32_t dilation = geometry[8];
    int32_t y = row * geometry[5] - geometry[9];
    for (int32_t filter_row = geometry[3]; filter_row > 0; --filter_row) {
        const bool inside = y >= 0 && y < geometry[0];
        int32_t x = column * geometry[6] - geometry[10];
        int32_t taps = geometry[4];
        while (taps > 0) {
            const int32_t run = inside ? window_run(x, width, taps, dilation) : taps;
            int32_t bytes = run * channels;
            if (inside && x >= 0 && x < width) {
                const int8_t *source = image + (y * width + x) * channels;
                for (; bytes >= 4; bytes -= 4) {
                    memcpy(window, source, 4);
                    window += 4;
                    source += 4;
                }
                for (; bytes > 0; --bytes) {
                    *window++ = *source++;
                }
            } else {
                for (; bytes > 0; --bytes) {
                    *window++ = (int8_t)geometry[12];
                }
            }
            x += run * dilation;
            taps -= run;
        }
        y += geometry[7];
    }
}
