/* Weighted sums of a spectrum's energies by channel; the rest of an energy belongs to the next channel
 * (signal/src/filter_bank.cc of TFLM). */
static inline void signal_filter_bank(
    uint64_t *output, const uint32_t *input, const int16_t *weights, const int16_t *unweights,
    const int16_t *frequencies, const int16_t *places, const int16_t *widths, int32_t channels)
{
    uint64_t sum = 0;
    for (int32_t channel = 0; channel <= channels; ++channel) {
        uint64_t next = 0;
        for (int32_t at = 0; at < widths[channel]; ++at) {
            const uint64_t energy = input[frequencies[channel] + at];
            sum += (uint64_t)(int64_t)weights[places[channel] + at] * energy;
            next += (uint64_t)(int64_t)unweights[places[channel] + at] * energy;
        }
        if (channel > 0) {
            output[channel - 1] = sum;
        }
        sum = next;
    }
}
