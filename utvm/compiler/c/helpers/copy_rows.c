/* Copies up to three rows of count values of one channel, which are channels bytes apart, to rows of pitch bytes. line:
 * from one of the rows to the next. */
static inline void copy_rows(
    int8_t *to, const int8_t *from, int32_t pitch, int32_t channels, int32_t line, int32_t count, int32_t rows)
{
    const int8_t *const end = to + count;
    if (rows >= 3) {
        for (; to != end; ++to) {
            to[0] = from[0];
            to[pitch] = from[line];
            to[2 * pitch] = from[2 * line];
            from += channels;
        }
    } else if (rows == 2) {
        for (; to != end; ++to) {
            to[0] = from[0];
            to[pitch] = from[line];
            from += channels;
        }
    } else if (rows == 1) {
        for (; to != end; ++to) {
            to[0] = from[0];
            from += channels;
        }
    } else {
        /* Nothing of the image is seen. */
    }
}
