{% set t = c_types[type] %}
/* Adds up overlapping frames (signal/src/overlap_add.cc of TFLM), integers saturated; the state holds the sums that go on. */
static inline void {{ name }}(
    {{ t }} *output, {{ t }} *after, const {{ t }} *input, const {{ t }} *before, int32_t rows, int32_t frames,
    int32_t size, int32_t step)
{
    for (int32_t at = 0; at < rows * size; ++at) {
        after[at] = before[at];
    }
    for (int32_t row = 0; row < rows; ++row, after += size) {
        for (int32_t frame = 0; frame < frames; ++frame, input += size, output += step) {
            for (int32_t at = 0; at < size; ++at) {
{% if type == "int16" %}
                const int32_t sum = (int32_t)input[at] + after[at];
                after[at] = (int16_t)(sum < INT16_MIN ? INT16_MIN : sum > INT16_MAX ? INT16_MAX : sum);
{% else %}
                after[at] += input[at];
{% endif %}
            }
            for (int32_t at = 0; at < size; ++at) {
                if (at < step) {
                    output[at] = after[at];
                }
                after[at] = at + step < size ? after[at + step] : 0{{ ".0f" if type == "float32" }};
            }
        }
    }
}
