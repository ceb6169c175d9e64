/* Computes rows of a 3 x 3 convolution, at most four, by Winograd's F(4x4, 3x3), exact in integers. geometry: as
 * copy_window has it, then: channels of the output; its zero, low and high; columns of the strip.
 * stream: for each four output channels, the weights of vector_winograd_products, then the scales of
 * vector_winograd_outputs. strip, values, sums: scratch; behind the strip a row of the image. spare: outputs of two tiles
 * that reach beyond the image. */
static void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, const int32_t *stream, int16_t *strip,
    int16_t *values, int32_t *sums, int8_t *spare, int32_t row, int32_t rows)
{
    const int32_t width = geometry[11];
    const int32_t channels = geometry[13];
    vector_winograd_columns_{{ chunks }}(strip, image, geometry, row);
    for (int32_t column = 0; column < width; column += 8) {
        const int32_t left = width - column;
        const bool whole = rows == 4 && left >= 8;
        const int32_t *from = stream;
        vector_winograd_data_{{ chunks }}(values, strip + column * 48, geometry[17]);
        for (int32_t channel = 0; channel < channels; channel += 4) {
            const int32_t *const scales = from + {{ 36 * 16 * chunks }};
            int8_t *const to = output + column * channels + channel;
            vector_winograd_products_{{ chunks }}(sums, values, from);
            vector_winograd_outputs_{{ rounded }}_{{ clamped }}_{{ wide }}(
                whole ? to : spare, sums, scales, geometry + 14, whole ? channels : 4, whole ? width * channels : 32);
            if (!whole) {
                for (int32_t y = 0; y < rows; ++y) {
                    for (int32_t x = 0; x < 8 && x < left; ++x) {
                        memcpy(to + (y * width + x) * channels, spare + 32 * y + 4 * x, 4);
                    }
                }
            }
            from = scales + 12;
        }
    }
}
