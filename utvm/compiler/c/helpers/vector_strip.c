/* Copies what a row of output sees of an image, all rows of the filter, padding filled in. geometry as vector_call has
 * it: each row of the strip begins with what the first pixel sees. */
static inline void vector_strip(int8_t *strip, const int8_t *image, const int32_t *geometry, int32_t row)
{
    const int32_t channels = geometry[2];
    const int32_t whole = geometry[1] * channels;
    const int32_t seen = ((geometry[11] - 1) * geometry[6] + geometry[4]) * channels;
    const int32_t left = geometry[10] * channels < seen ? geometry[10] * channels : seen;
    const int32_t inside = whole < seen - left ? whole : seen - left;
    int32_t y = row * geometry[5] - geometry[9];
    for (int32_t filter_row = geometry[3]; filter_row > 0; --filter_row) {
        if (y >= 0 && y < geometry[0]) {
            vector_fill(strip, geometry[12], left);
            vector_copy(strip + left, image + y * whole, inside);
            vector_fill(strip + left + inside, geometry[12], seen - left - inside);
        } else {
            vector_fill(strip, geometry[12], seen);
        }
        strip += geometry[21];
        y += geometry[7];
    }
}
