/* Adds up overlapping frames, saturated (signal/src/overlap_add.cc of TFLM); the state holds the sums that go on. */
static inline void signal_overlap_int16(
    int16_t *output, int16_t *after, const int16_t *input, const int16_t *before, int32_t rows, int32_t frames,
    int32_t size, int32_t step)
{
    for (int32_t at = 0; at < rows * size; ++at) {
        after[at] = before[at];
    }
    for (int32_t row = 0; row < rows; ++row, after += size) {
        for (int32_t frame = 0; frame < frames; ++frame, input += size, output += step) {
            for (int32_t at = 0; at < size; ++at) {
                const int32_t sum = (int32_t)input[at] + after[at];
                after[at] = (int16_t)(sum < INT16_MIN ? INT16_MIN : sum > INT16_MAX ? INT16_MAX : sum);
            }
            for (int32_t at = 0; at < size; ++at) {
                if (at < step) {
                    output[at] = after[at];
                }
                after[at] = at + step < size ? after[at + step] : 0;
            }
        }
    }
}
