/* Writes the windows of up to four output pixels as columns, as copy_window and expand_columns describe them, for
 * images whose channels are a multiple of four. */
static inline void window_columns(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels)
{
    const int32_t width = geometry[1];
    const int32_t channels = geometry[2];
    const int32_t dilation = geometry[8];
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        int32_t *place = columns + pixel;
        int32_t y = row * geometry[5] - geometry[9];
        const int32_t left = column * geometry[6] - geometry[10];
        const bool near = dilation == 1 && geometry[7] == 1;
        const bool within = near && y >= 0 && y + geometry[3] <= geometry[0] && left >= 0 && left + geometry[4] <= width;
        if (within) {
            const int8_t *source = image + (y * width + left) * channels;
            for (int32_t filter_row = geometry[3]; filter_row > 0; --filter_row) {
                place = expand_columns(place, source, geometry[4] * channels);
                source += width * channels;
            }
        }
        for (int32_t filter_row = within ? 0 : geometry[3]; filter_row > 0; --filter_row) {
            const bool inside = y >= 0 && y < geometry[0];
            int32_t x = column * geometry[6] - geometry[10];
            int32_t taps = geometry[4];
            while (taps > 0) {
                const int32_t run = inside ? window_run(x, width, taps, dilation) : taps;
                if (inside && x >= 0 && x < width) {
                    place = expand_columns(place, image + (y * width + x) * channels, run * channels);
                } else {
                    place = fill_columns(place, geometry[12], run * channels);
                }
                x += run * dilation;
                taps -= run;
            }
            y += geometry[7];
        }
        if (++column == geometry[11]) {
            column = 0;
            ++row;
        }
    }
}
