/* As copy_window; windows inside the image row by row. Not for dilated filters. */
static inline void {{ name }}(
    int8_t *window, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column)
{
    const int32_t line = geometry[1] * geometry[2];
    const int32_t y = row * geometry[5] - geometry[9];
    const int32_t x = column * geometry[6] - geometry[10];
    if (y >= 0 && y + {{ rows }} <= geometry[0] && x >= 0 && x + geometry[4] <= geometry[1]) {
        const int8_t *source = image + y * line + x * geometry[2];
{% for number in range(rows) %}
        memcpy(window + {{ run * number }}, source, {{ run }});
{% if not loop.last %}
        source += line;
{% endif %}
{% endfor %}
    } else {
        copy_window(window, image, geometry, row, column);
    }
}
