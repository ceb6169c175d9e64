{# INTEGER: int32, or int8 if the stream has bytes that widen makes words of. #}
{% set bytes = integer == "int8" %}
/* Computes rows of a depthwise convolution, from column on, one channel after the other: lift copies what they see of one
 * into the plane, filter computes it. geometry as copy_window has it. plane: lines rows of pitch halfwords. copies: how
 * many channels of output each of the input has. size: of the stream for each. */
static inline void {{ name }}(
    void (*filter)(int8_t *, const int16_t *, const int32_t *, int32_t),
    void (*lift)(int16_t *, int32_t, const int8_t *, int32_t, int32_t, int32_t), int8_t *output, const int8_t *image,
    const int32_t *geometry, int16_t *plane, const {{ integer }}_t *stream, int32_t row, int32_t column, int32_t rows,
    int32_t lines, int32_t pitch, int32_t copies, int32_t size{{ ", void (*widen)(int32_t *, const int8_t *, int32_t),
    int32_t *words, int32_t unit" if bytes }})
{
    const int32_t inputs = geometry[2];
    const int32_t top = row * geometry[5] - geometry[9];
    const int32_t left = column * geometry[6] - geometry[10];
    const int32_t above = top < 0 ? -top : 0;
    const int32_t before = left < 0 ? -left : 0;
    const int32_t below = geometry[0] - top < lines ? geometry[0] - top : lines;
    const int32_t behind = geometry[1] - left < pitch ? geometry[1] - left : pitch;
    const int32_t seen = before < behind ? below - above : 0;
    for (int32_t place = 0; place < lines * pitch; ++place) {
        plane[place] = (int16_t)geometry[12];
    }
    if (seen > 0) {
        plane += above * pitch + before;
        image += ((top + above) * geometry[1] + left + before) * inputs;
    }
    for (int32_t channel = 0; channel < inputs; ++channel) {
        lift(plane, pitch, image, geometry[1] * inputs, seen, behind - before);
        ++image;
        for (int32_t copy = 0; copy < copies; ++copy) {
{% if bytes %}
            widen(words, stream, unit);
{% endif %}
            filter(output, seen > 0 ? plane - above * pitch - before : plane, {{ "words" if bytes else "stream" }}, rows);
            ++output;
            stream += size;
        }
    }
}
