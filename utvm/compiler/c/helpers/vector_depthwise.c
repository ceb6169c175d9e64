/* Computes some pixels of a row of a depthwise convolution whose filter is at most four by four, from column on. geometry
 * as copy_window has it, then: channels of the output; its zero, low and high. scratch: four bytes for each value of a
 * column, for each of the columns that pixels, rounded up to four, see with a filter of four columns; 64 more; and a byte
 * for each such value, which the first step fills. All is read before anything is written. */
static inline void vector_depthwise(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream, int32_t row,
    int32_t column, int32_t pixels, int32_t columns)
{
    const int32_t channels = geometry[2];
    const int32_t whole = geometry[1] * channels;
    const int32_t seen = ((pixels - 1) * geometry[6] + geometry[4]) * channels;
    const int32_t begin = (column * geometry[6] - geometry[10]) * channels;
    const int32_t left = begin >= 0 ? 0 : -begin < seen ? -begin : seen;
    const int32_t rest = whole - begin - left;
    const int32_t inside = rest < 0 ? 0 : rest < seen - left ? rest : seen - left;
    int8_t *const outside = scratch + 4 * columns * channels + 64;
    const int8_t *rows[4] = {outside, outside, outside, outside};
    const int32_t first = row * geometry[5] - geometry[9];
    if (row == 0 && column == 0) {
        vector_fill(outside, geometry[12], columns * channels);
    }
    vector_fill(scratch, geometry[12], 4 * left);
    for (int32_t each = 0; each < geometry[3]; ++each) {
        const int32_t y = first + each * geometry[7];
        if (y >= 0 && y < geometry[0]) {
            rows[each] = image + y * whole + (inside > 0 ? begin + left : 0);
        }
    }
    if (inside > 0) {
        vector_columns(scratch + 4 * left, rows, inside);
    }
    vector_fill(scratch + 4 * (left + inside), geometry[12], 4 * (seen - left - inside));
    if (geometry[13] > 0) {
        const struct vector_channels call = {
            scratch, output, stream, geometry[13], pixels, 4 * channels, 4 * channels * geometry[6],
            geometry[14], geometry[15], geometry[16]};
        vector_channels(&call);
    }
}
