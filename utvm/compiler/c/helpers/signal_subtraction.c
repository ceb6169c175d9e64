/* Subtracts a running estimate of the noise (signal/src/filter_bank_spectral_subtraction.cc of TFLM). */
static inline void signal_subtraction(
    uint32_t *output, uint32_t *noise, uint32_t *after, const uint32_t *input, const uint32_t *before, int32_t size,
    uint32_t odd_rest, uint32_t odd_smoothing, int32_t clamping, uint32_t remaining, uint32_t rest, uint32_t smoothing,
    int32_t smoothing_bits, int32_t bits)
{
    for (int32_t at = 0; at < size; ++at) {
        const bool odd = (at & 1) != 0;
        const uint32_t value = input[at] << smoothing_bits;
        const uint64_t sum = (uint64_t)value * (odd ? odd_smoothing : smoothing)
            + (uint64_t)before[at] * (odd ? odd_rest : rest);
        uint32_t estimate = (uint32_t)(sum >> bits);
        after[at] = estimate;
        if (estimate > value) {
            estimate = value;
            if (clamping != 0) {
                after[at] = estimate;
            }
        }
        noise[at] = after[at];
        const uint32_t lowest = (uint32_t)(((uint64_t)input[at] * remaining) >> bits);
        const uint32_t difference = (value - estimate) >> smoothing_bits;
        output[at] = difference > lowest ? difference : lowest;
    }
}
