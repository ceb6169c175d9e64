/* Writes up to four neighbouring pixels, each channels (a multiple of four) values, as columns; see expand_columns. */
static inline void pixel_columns(int32_t *columns, const int8_t *pixels, int32_t channels, int32_t count)
{
    for (int32_t pixel = 0; pixel < count; ++pixel) {
        (void)expand_columns(columns + pixel, pixels + pixel * channels, channels);
    }
}
