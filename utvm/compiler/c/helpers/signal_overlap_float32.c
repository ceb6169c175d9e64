/* Adds up overlapping frames (signal/src/overlap_add.cc of TFLM); the state holds the sums that go on. */
static inline void signal_overlap_float32(
    float *output, float *after, const float *input, const float *before, int32_t rows, int32_t frames,
    int32_t size, int32_t step)
{
    for (int32_t at = 0; at < rows * size; ++at) {
        after[at] = before[at];
    }
    for (int32_t row = 0; row < rows; ++row, after += size) {
        for (int32_t frame = 0; frame < frames; ++frame, input += size, output += step) {
            for (int32_t at = 0; at < size; ++at) {
                after[at] += input[at];
            }
            for (int32_t at = 0; at < size; ++at) {
                if (at < step) {
                    output[at] = after[at];
                }
                after[at] = at + step < size ? after[at + step] : 0.0f;
            }
        }
    }
}
