{# All channels of some output rows, from a plane of LINES lines; COPIES output channels per input channel. The other
   numbers are those of dsp_plane. #}
{% set plane = [across, down, pitch, pixels, channels, rounded, limit]|join("_") %}
static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *plane, const int32_t *stream,
    int32_t row, int32_t column, int32_t rows)
{
    depthwise_band(
        dsp_plane_{{ plane }}, dsp_lift_{{ channels // copies }}, output, image, geometry,
        (int16_t *)plane, stream, row, column, rows, {{ lines }}, {{ pitch // 2 }}, {{ copies }}, 10);
}
