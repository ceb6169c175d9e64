{# Exact in integers: the rows of G are scaled to integers, the results are shifted back. #}
{% set size = tile + 2 %}
{% set positions = size * size %}
/* Computes rows of a 3 x 3 convolution, at most {{ tile }}, by Winograd's algorithm on tiles of {{ tile }} x {{ tile }} outputs.
 * stream: for each four output channels, the weights of winograd_products, then the scales of winograd_outputs.
 * strip, values, sums: scratch. spare: outputs of two tiles that reach beyond the image. */
static void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, const int32_t *stream, int32_t *strip,
    int32_t *values, int32_t *sums, int8_t *spare, int32_t row, int32_t rows, int32_t channels)
{
    const int32_t width = geometry[11];
    const int32_t words = geometry[2] / 4;
    const int32_t pixels = (width + {{ 2 * tile - 1 }}) / {{ 2 * tile }} * {{ 2 * tile }} + 2;
    winograd_strip(strip, image, geometry, row, {{ size }}, pixels);
    for (int32_t column = 0; column < width; column += {{ 2 * tile }}) {
        const int32_t left = width - column;
        const bool whole = rows == {{ tile }} && left >= {{ 2 * tile }};
        const int32_t *from = stream;
        winograd_data_{{ tile }}(values, strip + column * words, pixels * words, words);
        winograd_data_{{ tile }}(values + 1, strip + (column + {{ tile }}) * words, pixels * words, words);
        for (int32_t channel = 0; channel < channels; channel += 4) {
            const int32_t *const scales = from + {{ positions * (4 + 4 * pairs) }};
            int8_t *const to = output + column * channels + channel;
            winograd_products_{{ tile }}_{{ pairs }}(sums, values, from);
            if (whole) {
                winograd_outputs_{{ tile }}_{{ rounded }}_{{ limit }}(to, sums, scales, channels, width * channels);
            } else {
                winograd_outputs_{{ tile }}_{{ rounded }}_{{ limit }}(spare, sums, scales, 4, {{ 8 * tile }});
                for (int32_t y = 0; y < rows; ++y) {
                    for (int32_t x = 0; x < {{ 2 * tile }} && x < left; ++x) {
                        memcpy(to + (y * width + x) * channels, spare + (y * {{ 2 * tile }} + x) * 4, 4);
                    }
                }
            }
            from = scales + 16;
        }
    }
}
