/* Delays rows by some samples; the state holds the last ones (signal/micro/kernels/delay.cc of TFLM). */
static inline void signal_delay(
    int16_t *output, int16_t *after, const int16_t *input, const int16_t *before, int32_t rows, int32_t frame,
    int32_t delay)
{
    for (int32_t row = 0; row < rows; ++row, output += frame, input += frame, before += delay, after += delay) {
        for (int32_t at = 0; at < frame + delay; ++at) {
            const int16_t value = at < delay ? before[at] : input[at - delay];
            if (at < frame) {
                output[at] = value;
            } else {
                after[at - frame] = value;
            }
        }
    }
}
