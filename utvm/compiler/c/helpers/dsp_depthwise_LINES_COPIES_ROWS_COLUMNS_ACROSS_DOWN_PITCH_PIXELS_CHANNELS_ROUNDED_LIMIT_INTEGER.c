{# All channels of some output rows, from a plane of LINES lines; COPIES output channels per input channel. INTEGER: int32,
   or int8 if the weights are bytes, see dsp_widen. The other numbers are those of dsp_plane. #}
{% set plane = [across, down, pitch, pixels, channels, rounded, limit]|join("_") %}
{% set bytes = integer == "int8" %}
static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *plane, const {{ integer }}_t *stream,
    int32_t row, int32_t column, int32_t lines{{ ", int32_t unit" if bytes }})
{
    depthwise_band_{{ integer }}(
        dsp_plane_{{ plane }}, dsp_lift_{{ channels // copies }}, output, image, geometry,
        (int16_t *)plane, stream, row, column, lines, {{ lines }}, {{ pitch // 2 }}, {{ copies }}, {{ rows * columns + 8 if bytes else 10 -}}
        {{ (", dsp_widen_%d_%d_%d, plane + %d, unit" % (rows, columns, across, lines * pitch // 4)) if bytes }});
}
