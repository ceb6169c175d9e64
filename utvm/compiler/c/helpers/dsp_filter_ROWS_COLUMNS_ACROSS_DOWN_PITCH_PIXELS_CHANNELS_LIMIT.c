{# One channel of a depthwise convolution with a large filter: strides, halfwords between rows of the plane, pixels per
   output row, output channels. #}
{% import "dsp.j2" as dsp %}
{% set words, together = columns // 2 + 1, 4 if pixels % 4 in (0, 3) else 2 %}
{% set shared = 2 if across == 1 else 1 %}
/* stream: for each row of the filter its weights, two in a word, the first one lowest{{ "; the same after a zero" if across == 1 }}; the bias, with
 * the input's zero point; the multiplier, addend and shift of scale_sum. No sum may overflow. */
static inline void {{ name }}(int8_t *output, const int16_t *plane, const int32_t *stream, int32_t rows)
{
    const int32_t *const scale = stream + {{ rows * words * shared }};
    for (; rows > 0; --rows) {
        const int16_t *at = plane;
        for (int32_t pixel = 0; pixel < {{ pixels }}; pixel += {{ together }}) {
            int32_t sums[{{ together }}] = { {{- (["scale[0]"] * together)|join(", ") -}} };
            const int32_t *weights = stream;
            const int16_t *values = at;
            for (int32_t row = 0; row < {{ rows }}; ++row) {
{% for word in range(words + (together // 2 if across == 1 else together) - 1) %}
                const uint32_t values_{{ word }} = load_word(values + {{ 2 * word }});
{% endfor %}
{% for pixel in range(together) %}
{% for word in range(words) %}
                sums[{{ pixel }}] = add_products(
                    sums[{{ pixel }}], values_{{ word + (pixel // 2 if across == 1 else pixel) }}, (uint32_t)weights[{{ word + (words if across == 1 and pixel % 2 else 0) }}]);
{% endfor %}
{% endfor %}
                weights += {{ words * shared }};
                values += {{ pitch }};
            }
            for (int32_t place = 0; place < {{ together }} && pixel + place < {{ pixels }}; ++place) {
                const int32_t value = scale_sum(sums[place], scale[1], scale[2], scale[3]);
                *output = (int8_t)(value < {{ -128 if limit == 8 else 0 }} ? {{ -128 if limit == 8 else 0 }} : value > 127 ? 127 : value);
                output += {{ channels }};
            }
            at += {{ together * across }};
        }
        plane += {{ down * pitch }};
    }
}
