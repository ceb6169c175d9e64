/* Puts windows together in window and writes them as columns. */
static inline void {{ name }}(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels,
    int8_t *window)
{
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        copy_window_{{ rows }}_{{ run }}(window, image, geometry, row, column);
        (void)expand_columns(columns + pixel, window, {{ (rows * run + 3) // 4 * 4 }});
        if (++column == geometry[11]) {
            column = 0;
            ++row;
        }
    }
}
