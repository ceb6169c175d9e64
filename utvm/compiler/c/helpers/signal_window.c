/* Multiplies frames by a window and shifts right, saturated to 16 bits (signal/src/window.cc of TFLM). */
static inline void signal_window(
    int16_t *output, const int16_t *input, const int16_t *window, int32_t size, int32_t count, int32_t shift)
{
    for (int32_t at = 0; at < size; ++at) {
        const int32_t value = ((int32_t)input[at] * window[at % count]) >> shift;
        output[at] = (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
    }
}
