/* Stacks the last frames of some channels (signal/micro/kernels/stacker.cc of TFLM). The state holds the samples that
 * wait, and at its end one more than their number, or 0 before the first frame, which also stands for those to its
 * left. An incomplete stack, which TFLM leaves as it is, becomes 0. */
static inline void signal_stacker(
    int16_t *output, bool *valid, int16_t *after, const int16_t *input, const int16_t *before, int32_t channels,
    int32_t left, int32_t right, int32_t frames)
{
    const int32_t size = channels * (left + right + 1);
    const int32_t step = channels * frames;
    int32_t count = before[size] > 0 ? before[size] - 1 : 0;
    for (int32_t at = 0; at < size; ++at) {
        after[at] = before[at];
    }
    for (int32_t copy = before[size] > 0 ? left : 0; copy <= left; ++copy) {
        for (int32_t at = 0; at < channels; ++at) {
            after[count++] = input[at];
        }
    }
    valid[0] = count >= size;
    for (int32_t at = 0; at < size; ++at) {
        output[at] = valid[0] ? after[at] : 0;
    }
    if (valid[0]) {
        count -= step;
        for (int32_t at = 0; at < count; ++at) {
            after[at] = after[at + step];
        }
    }
    after[size] = (int16_t)(count + 1);
}
