{# The products of three pixels side by side: a weight is loaded once, a value once for all windows that have it. #}
{% macro products() %}
{% for row in range(3) %}
{% for column in range(3) %}
ldrsb %[weight_{{ column }}], [%[weights], #{{ 3 * column + row }}]
{% endfor %}
{% for at in range(2 * across + 3) %}
ldrsb %[value], [%[{{ "line" if row else "place" }}], #{{ at }}]
{% for pixel in range(3) if 0 <= at - pixel * across <= 2 %}
{% set tap = at - pixel * across %}
mla %[sum_{{ pixel }}], %[value], %[weight_{{ tap }}], %[{{ "sum_%d" % pixel if row or tap else "bias" }}]
{% endfor %}
{% endfor %}
{% if row < 2 %}
add %[line], %[{{ "line" if row else "place" }}], %[pitch]
{% endif %}
{% endfor %}
{% endmacro %}
#if defined(__GNUC__) && defined(__OPTIMIZE__) && defined(__thumb2__)
#define DEPTHWISE_THREES

/* As depthwise_single, three pixels at a time, of rows of at least three, for windows {{ across }} apart. The last three of a row
 * may have pixels of those before. */
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int8_t *plane, const int32_t *size, const int8_t *weights, const int32_t *scales,
    int32_t channels)
{
    const int32_t pitch = size[2];
    const int32_t bias = scales[0];
    const int32_t multiplier = scales[1];
    const int32_t offset = scales[2];
    const int32_t shift = scales[3];
    for (int32_t row = size[1]; row > 0; --row) {
        const int8_t *place = plane;
        const int8_t *const last = plane + (size[0] - 3) * {{ across }};
        for (;;) {
            int32_t sum_0, sum_1, sum_2, weight_0, weight_1, weight_2, value;
            const int8_t *line;
            __asm__ volatile(
{{ products() | instructions }}                : [sum_0] "=&r"(sum_0), [sum_1] "=&r"(sum_1), [sum_2] "=&r"(sum_2), [line] "=&r"(line),
                  [weight_0] "=&r"(weight_0), [weight_1] "=&r"(weight_1), [weight_2] "=&r"(weight_2),
                  [value] "=&r"(value)
                : [place] "r"(place), [pitch] "r"(pitch), [weights] "r"(weights), [bias] "r"(bias)
                : "memory");
            output[0] = (int8_t)saturate_int8(scale_folded(sum_0, multiplier, offset, shift));
            output[channels] = (int8_t)saturate_int8(scale_folded(sum_1, multiplier, offset, shift));
            output[2 * channels] = (int8_t)saturate_int8(scale_folded(sum_2, multiplier, offset, shift));
            output += 3 * channels;
            if (place == last) {
                break;
            }
            place += {{ 3 * across }};
            if (place > last) {
                output -= (int32_t)(place - last) / {{ across }} * channels;
                place = last;
            }
        }
        plane += size[4];
    }
}
#endif

