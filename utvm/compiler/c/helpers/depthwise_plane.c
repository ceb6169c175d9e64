/* Copies what a row of output sees of one channel, [columns][rows of the filter], from filter row first up to behind.
 * source: the channel's value in the first of these; line: from one of the filter's rows to the next in the image. */
static inline void depthwise_plane(
    int8_t *plane, const int8_t *end, const int8_t *source, int32_t channels, int32_t rows, int32_t line,
    int32_t first, int32_t behind)
{
    if (behind - first == 3 && rows == 3) {
        for (; plane != end; plane += 3) {
            plane[0] = source[0];
            plane[1] = source[line];
            plane[2] = source[2 * line];
            source += channels;
        }
        return;
    }
    for (int32_t row = first; row < behind; ++row) {
        const int8_t *from = source;
        for (int8_t *to = plane; to != end; to += rows) {
            to[row] = *from;
            from += channels;
        }
        source += line;
    }
}
