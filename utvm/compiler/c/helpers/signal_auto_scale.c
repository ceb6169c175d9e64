/* Shifts left until the largest value has 15 bits, and says by how many (signal/src/fft_auto_scale.cc of TFLM).
 * -32768 negates to itself there and is then no longer the largest: so it is here. */
static inline void signal_auto_scale(int16_t *output, int32_t *scale_bits, const int16_t *input, int32_t size)
{
    int32_t largest = 0;
    for (int32_t at = 0; at < size; ++at) {
        if (input[at] > largest) {
            largest = input[at];
        } else if (-input[at] > largest) {
            largest = input[at] == INT16_MIN ? INT16_MIN : -input[at];
        }
    }
    const int32_t bits = 15 - signal_bits((uint32_t)largest);
    scale_bits[0] = bits > 0 ? bits : 0;
    for (int32_t at = 0; at < size; ++at) {
        output[at] = (int16_t)(input[at] * ((int32_t)1 << scale_bits[0]));
    }
}
