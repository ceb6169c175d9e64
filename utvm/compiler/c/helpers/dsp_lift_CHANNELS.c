/* Copies one channel of lines of an image, count pixels of each, into a plane. */
static inline void {{ name }}(
    int16_t *plane, int32_t pitch, const int8_t *image, int32_t line, int32_t lines, int32_t count)
{
    for (; lines > 0; --lines) {
        int16_t *to = plane;
        const int8_t *from = image;
{% for part in (8, 4, 2, 1) %}
{% if part == 8 %}
        for (const int16_t *end = plane + (count & ~7); to != end;) {
{% else %}
        if ((count & {{ part }}) != 0) {
{% endif %}
{% for place in range(part) %}
            to[{{ place }}] = from[{{ place * channels }}];
{% endfor %}
            to += {{ part }};
            from += {{ part * channels }};
        }
{% endfor %}
        plane += pitch;
        image += line;
    }
}
