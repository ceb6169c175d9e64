/* Puts windows together in window, those inside row by row, and writes them as columns. */
static inline void {{ name }}(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels,
    int8_t *window)
{
    const int32_t line = geometry[1] * geometry[2];
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
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
        (void)expand_columns(columns + pixel, window, {{ (rows * run + 3) // 4 * 4 }});
        if (++column == geometry[11]) {
            column = 0;
            ++row;
        }
    }
}
