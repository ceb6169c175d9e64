{# As dsp_depthwise, with dsp_filter. #}
{% set bytes = integer == "int8" %}
static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *plane, const {{ integer }}_t *stream,
    int32_t row, int32_t column, int32_t lines{{ ", int32_t unit" if bytes }})
{
    depthwise_band_{{ integer }}(
        dsp_filter_{{ [rows, columns, across, down, pitch, pixels, channels, limit]|join("_") }},
        dsp_lift_{{ channels // copies }}, output, image, geometry, (int16_t *)plane, stream, row, column, lines,
        {{ lines }}, {{ pitch }}, {{ copies }}, {{ rows * columns + 8 if bytes else rows * (columns // 2 + 1) * (2 if across == 1 else 1) + 4 -}}
        {{ (", dsp_widen_%d_%d_%d, plane + %d, unit" % (rows, columns, across, lines * pitch // 2)) if bytes }});
}
