{# Makes the stream of dsp_plane, or of dsp_filter for a filter larger than 3x3. #}
{% set small = rows <= 3 and columns <= 3 %}
{% macro weight(row, column) -%}
{{ "bytes[%d]" % (row * columns + column) if 0 <= row < rows and 0 <= column < columns else "0" }}
{%- endmacro %}
{% macro word(row, column) -%}
(int32_t)((uint32_t)(uint16_t)({{ weight(row, column) }}{{ " * 2" if small }}) | (uint32_t)({{ weight(row, column + 1) }}{{ " * 2" if small }}) << 16)
{%- endmacro %}
/* Makes a channel's words from its weights as bytes, a word of its bias, times 256, and its shift less one, and its
 * multiplier. unit: one more than twice the output's zero point. */
static inline void {{ name }}(int32_t *words, const int8_t *bytes, int32_t unit)
{
{% if small %}
{% for row in range(3) %}
    words[{{ 2 * row }}] = {{ word(row, 0) }};
    words[{{ 2 * row + 1 }}] = {{ word(row, 1) }};
{% endfor %}
    words += 6;
    bytes += {{ rows * columns }};
{% else %}
    for (int32_t row = 0; row < {{ rows }}; ++row) {
{% for start in ((0, -1) if across == 1 else (0,)) %}
{% for at in range(columns // 2 + 1) %}
        *words = {{ word(0, 2 * at + start) }};
        ++words;
{% endfor %}
{% endfor %}
        bytes += {{ columns }};
    }
{% endif %}
    const int32_t both = (int32_t)load_word(bytes);
    const int32_t shift = both & 31;
    words[0] = {{ "(both >> 8) * 2" if small else "both >> 8" }};
    words[1] = (int32_t)load_word(bytes + 4);
    words[2] = (int32_t)((uint32_t)unit << shift);
    words[3] = shift + 1;
}
