/* As window_columns, for any number of channels: each window is put together in window first, which has room for it,
 * size rounded up to four bytes. */
static inline void copied_columns(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels,
    int8_t *window, int32_t size)
{
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        copy_window(window, image, geometry, row, column);
        (void)expand_columns(columns + pixel, window, size);
        if (++column == geometry[11]) {
            column = 0;
            ++row;
        }
    }
}
