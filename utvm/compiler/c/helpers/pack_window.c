/* Packs what one output pixel sees of an image into every second word from columns: the first of a word's two pixels, or
 * the second, times 2^16, onto it. geometry: height, width, channels of the image; rows, columns of the filter; vertical
 * and horizontal stride and dilation; padding above and on the left; width of the output; the value of what is padded. */
static inline void pack_window(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, bool second)
{
    const int32_t channels = geometry[2];
    const int8_t padding = (int8_t)geometry[12];
    int32_t y = row * geometry[5] - geometry[9];
    for (int32_t rows = geometry[3]; rows > 0; --rows) {
        int32_t x = column * geometry[6] - geometry[10];
        for (int32_t taps = geometry[4]; taps > 0; --taps) {
            const bool inside = y >= 0 && y < geometry[0] && x >= 0 && x < geometry[1];
            const int8_t *source = &padding;
            int32_t step = 0;
            if (inside) {
                source = image + (y * geometry[1] + x) * channels;
                step = 1;
            }
            const int32_t *const end = columns + 2 * channels;
            if (second) {
                for (; columns != end; columns += 2) {
                    *columns += *source * 65536;
                    source += step;
                }
            } else {
                for (; columns != end; columns += 2) {
                    *columns = *source;
                    source += step;
                }
            }
            x += geometry[8];
        }
        y += geometry[7];
    }
}
