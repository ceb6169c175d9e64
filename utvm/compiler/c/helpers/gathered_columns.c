/* As window_columns, for any number of channels: each window is put together in window first, which has room for it,
 * rounded up to four bytes. */
static inline void gathered_columns(
    int16_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels,
    int8_t *window)
{
    const int32_t size = geometry[2] * geometry[3] * geometry[4];
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        copy_window(window, image, geometry, row, column);
        (void)expand_columns(columns + 2 * pixel, window, (size + 3) / 4 * 4);
        if (++column == geometry[11]) {
            column = 0;
            ++row;
        }
    }
}
