{# A^T m A, whose results are 4 times the convolution's (tile 2) or 9 * 2^k times (tile 4). 1/9 modulo 2^32 is 954437177;
   a shift to the right then leaves twice the convolution. #}
{% set size = tile + 2 %}
{% macro transform() %}
{% if tile == 4 %}
            const uint32_t first = m1 + m2;
            const uint32_t second = m1 - m2;
            const uint32_t third = m3 + m4;
            const uint32_t fourth = m3 - m4;
            const uint32_t y0 = m0 + third - (first << 2);
            const uint32_t y1 = fourth - (second << 1);
            const uint32_t y2 = third - first;
            const uint32_t y3 = m5 - second + (fourth << 1);
{% else %}
            const uint32_t y0 = m0 + m1 + m2;
            const uint32_t y1 = m1 - m2 - m3;
{% endif %}
{% endmacro %}
/* Turns sums, [{{ size * size }} positions][2 tiles][4 channels], into {{ tile }} x {{ tile }} outputs of each tile and channel. channels,
 * pitch: from one pixel, and from one row, to the next. scales: for each channel twice its bias, and the
 * factor, offset and shift of scale_sum. */
static void {{ name }}(
    int8_t *output, const int32_t *sums, const int32_t *scales, int32_t channels, int32_t pitch)
{
{% if tile == 4 %}
    static const int32_t powers[4] = {2, 1, 0, 0};
{% endif %}
    for (int32_t number = 0; number < 8; ++number) {
        const int32_t *const scale = scales + number % 4 * 4;
        const uint32_t bias = (uint32_t)scale[0];
        const int32_t factor = scale[1];
        const int32_t offset = scale[2];
        const int32_t shift = scale[3];
        int8_t *to = output + number % 4 + number / 4 * {{ tile }} * channels;
        uint32_t columns[{{ tile * size }}];
        for (int32_t x = 0; x < {{ size }}; ++x) {
{% for i in range(size) %}
            const uint32_t m{{ i }} = (uint32_t)sums[{{ i * size * 8 }} + 8 * x];
{% endfor %}
{{ transform() -}}
{% for i in range(tile) %}
            columns[{{ i * size }} + x] = y{{ i }};
{% endfor %}
        }
        for (int32_t y = 0; y < {{ tile }}; ++y) {
            const uint32_t *const from = columns + {{ size }} * y;
{% for x in range(size) %}
            const uint32_t m{{ x }} = from[{{ x }}];
{% endfor %}
{{ transform() -}}
{% for x in range(tile) %}
{% if tile == 4 %}
            const int32_t twice{{ x }} = ((int32_t)(y{{ x }} * 954437177u) >> powers[y]) >> {{ [3, 2, 1, 1][x] }};
{% else %}
            const int32_t twice{{ x }} = (int32_t)y{{ x }} >> 1;
{% endif %}
            to[{{ x }} * channels] = (int8_t)winograd_scale_{{ rounded }}_{{ limit }}(
                (int32_t)(bias + (uint32_t)twice{{ x }}), factor, offset, shift);
{% endfor %}
            to += pitch;
        }
        ++sums;
    }
}
