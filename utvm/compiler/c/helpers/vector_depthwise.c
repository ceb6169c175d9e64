/* Computes a row of a depthwise convolution whose filter is at most four by four. geometry as copy_window has it, then:
 * channels of the output; its zero, low and high. scratch: four bytes for each value of a column, for each column that
 * pixels, rounded up to four, see with a filter of four columns; 64 more; and a row of the image. All is read before
 * anything is written. */
static inline void vector_depthwise(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream, int32_t row,
    int32_t columns)
{
    const int32_t channels = geometry[2];
    const int32_t whole = geometry[1] * channels;
    const int32_t seen = ((geometry[11] - 1) * geometry[6] + geometry[4]) * channels;
    const int32_t left = geometry[10] * channels < seen ? geometry[10] * channels : seen;
    const int32_t inside = whole < seen - left ? whole : seen - left;
    int8_t *const outside = scratch + 4 * columns * channels + 64;
    const int8_t *rows[4] = {outside, outside, outside, outside};
    const int32_t first = row * geometry[5] - geometry[9];
    if (row == 0) {
        vector_fill(outside, geometry[12], whole);
        vector_fill(scratch, geometry[12], 4 * left);
    }
    for (int32_t each = 0; each < geometry[3]; ++each) {
        const int32_t y = first + each * geometry[7];
        if (y >= 0 && y < geometry[0]) {
            rows[each] = image + y * whole;
        }
    }
    if (inside > 0) {
        vector_columns(scratch + 4 * left, rows, inside);
    }
    vector_fill(scratch + 4 * (left + inside), geometry[12], 4 * (seen - left - inside));
    if (geometry[13] > 0) {
        const struct vector_channels call = {
            scratch, output, stream, geometry[13], geometry[11], 4 * channels, 4 * channels * geometry[6],
            geometry[14], geometry[15], geometry[16]};
        vector_channels(&call);
    }
}
