/* Computes one row of a depthwise convolution's output. Pixels whose windows reach beyond the image, or have holes,
 * are computed from a copy in window, [rows][columns][channels]. */
static inline void depthwise_row(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *window, int32_t row,
    const int32_t *weights, const int32_t *bias, const int32_t *scales, int32_t low, int32_t high)
{
    const int32_t width = geometry[1];
    const int32_t channels = geometry[2];
    const int32_t columns = geometry[4];
    const int32_t y = row * geometry[5] - geometry[9];
    const bool inside = y >= 0 && y + geometry[3] <= geometry[0] && geometry[7] == 1 && geometry[8] == 1;
    for (int32_t column = 0; column < geometry[11]; ++column) {
        const int32_t x = column * geometry[6] - geometry[10];
        const int8_t *source = window;
        int32_t stride = columns * channels;
        if (inside && x >= 0 && x + columns <= width) {
            source = image + (y * width + x) * channels;
            stride = width * channels;
        } else {
            copy_window(window, image, geometry, row, column);
        }
        depthwise_pixel(output, source, stride, geometry, weights, bias, scales, low, high);
        output += channels;
    }
}
