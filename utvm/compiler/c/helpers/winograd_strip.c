/* Copies rows of an image and their padding into a strip: words of four channels, each value plus 128.
 * geometry: see copy_window; the strides are 1. row: of the output. pixels: width of the strip. */
static inline void winograd_strip(
    int32_t *strip, const int8_t *image, const int32_t *geometry, int32_t row, int32_t rows, int32_t pixels)
{
    const int32_t width = geometry[1];
    const int32_t words = geometry[2] / 4;
    const int32_t left = geometry[10];
    const int32_t inner = width < pixels - left ? width : pixels - left;
    const uint32_t padding = (uint32_t)(geometry[12] + 128) * 0x01010101u;
    for (int32_t y = row - geometry[9]; rows > 0; ++y, --rows) {
        const bool inside = y >= 0 && y < geometry[0];
        const int32_t *const before = strip + (inside ? left : pixels) * words;
        const int32_t *const end = strip + pixels * words;
        while (strip != before) {
            *strip++ = (int32_t)padding;
        }
        if (inside) {
            const int8_t *source = image + y * width * geometry[2];
            for (const int32_t *last = strip + inner * words; strip != last; source += 4) {
                *strip++ = (int32_t)(load_word(source) ^ 0x80808080u);
            }
        }
        while (strip != end) {
            *strip++ = (int32_t)padding;
        }
    }
}
