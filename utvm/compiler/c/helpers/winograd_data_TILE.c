{# Winograd's F(2x2, 3x3) and F(4x4, 3x3): B^T d B of one tile (Lavin and Gray, "Fast Algorithms for Convolutional Neural
   Networks", 2016, 4.1). Two channels are in a word, 65536 * second + first, so that sums are those of both. A constant
   is added to all of them, which keeps them above zero. Loops, as code of this length does not stay in a small cache. #}
{% set size = tile + 2 %}
{% macro transform(place) %}
{% if tile == 4 %}
                const uint32_t even = d4 - (d2 << 2);
                const uint32_t odd = d3 - (d1 << 2);
                const uint32_t sum = d4 - d2;
                const uint32_t difference = (d3 - d1) << 1;
                {{ place }}[0] = (int32_t)(sum + ((d0 - d2) << 2));
                {{ place }}[STEP] = (int32_t)(even + odd);
                {{ place }}[2 * STEP] = (int32_t)(even - odd);
                {{ place }}[3 * STEP] = (int32_t)(sum + difference);
                {{ place }}[4 * STEP] = (int32_t)(sum - difference);
                {{ place }}[5 * STEP] = (int32_t)(d5 - odd - (d3 << 2));
{% else %}
                {{ place }}[0] = (int32_t)(d0 - d2);
                {{ place }}[STEP] = (int32_t)(d1 + d2);
                {{ place }}[2 * STEP] = (int32_t)(d2 - d1);
                {{ place }}[3 * STEP] = (int32_t)(d1 - d3);
{% endif %}
{% endmacro %}
{# The transform turns these multiples of the constant, in columns and in rows, into the constant itself everywhere. #}
{% set offset, factors = {2: (1020, [2, 0, 1, -1]), 4: (12750, [0, 0, 0, 0, 1, 1])}[tile] %}
/* Transforms a tile of {{ size }} x {{ size }} pixels for all channels. pitch: words of a row of the strip. words: of a pixel.
 * output: [{{ size * size }} positions][pairs of channels][2 tiles], at the tile's place. */
static void {{ name }}(int32_t *output, const int32_t *strip, int32_t pitch, int32_t words)
{
    static const uint32_t offsets[{{ size }}] = {
{%- for factor in factors %}{{ ", " if not loop.first }}{{ (factor * offset * 65537) % 2**32 }}u{% endfor %}};
    const int32_t step = 4 * words;
    for (int32_t word = 0; word < words; ++word) {
{% for half in range(2) %}
        {
            int32_t columns[{{ size * size }}];
            for (int32_t x = 0; x < {{ size }}; ++x) {
                const int32_t *const from = strip + x * words;
                const uint32_t offset = offsets[x];
                int32_t *const to = columns + x;
{% for y in range(size) %}
                const uint32_t d{{ y }} = (((uint32_t)from[{{ y }} * pitch]{{ " >> 8" if half }}) & 0x00ff00ffu)
{%- if factors[y] == 2 %} + 2u * offset{% elif factors[y] == 1 %} + offset{% elif factors[y] == -1 %} - offset{% endif %};
{% endfor %}
{{ transform("to").replace("STEP", size|string) -}}
            }
            for (int32_t y = 0; y < {{ size }}; ++y) {
                const int32_t *const from = columns + {{ size }} * y;
                int32_t *const to = output + {{ size }} * y * step;
{% for x in range(size) %}
                const uint32_t d{{ x }} = (uint32_t)from[{{ x }}];
{% endfor %}
{{ transform("to").replace("STEP", "step") -}}
            }
            output += 2;
        }
{% endfor %}
        ++strip;
    }
}
