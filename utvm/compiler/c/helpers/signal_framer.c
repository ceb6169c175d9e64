/* Overlapping frames of a signal (signal/micro/kernels/framer.cc of TFLM). The state holds the samples that wait, of
 * each row, and at its end how many more of them there are than at the beginning. A frame without its samples, which
 * TFLM leaves as it is, becomes 0. */
static inline void signal_framer(
    int16_t *output, bool *valid, int16_t *after, const int16_t *input, const int16_t *before, int32_t rows,
    int32_t frames, int32_t size, int32_t step, int32_t prefill)
{
    const int32_t capacity = (size + step - 1) / step * step;
    const int32_t begin = prefill != 0 ? size - step : 0;
    int32_t count = 0;
    valid[0] = true;
    for (int32_t row = 0; row < rows; ++row, after += capacity, before += capacity) {
        count = begin + before[(rows - row) * capacity];
        for (int32_t at = 0; at < capacity; ++at) {
            after[at] = before[at];
        }
        for (int32_t frame = 0; frame < frames; ++frame, output += size, input += step) {
            for (int32_t at = 0; at < step; ++at) {
                after[count + at] = input[at];
            }
            count += step;
            const bool whole = count >= size;
            for (int32_t at = 0; at < size; ++at) {
                output[at] = whole ? after[at] : 0;
            }
            if (whole) {
                count -= step;
                for (int32_t at = 0; at < count; ++at) {
                    after[at] = after[at + step];
                }
            } else {
                valid[0] = false;
            }
        }
    }
    after[0] = (int16_t)(count - begin);
}
