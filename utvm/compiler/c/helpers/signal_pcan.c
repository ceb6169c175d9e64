/* Per-channel amplitude normalisation by a table of gains (signal/src/pcan_argc_fixed.cc of TFLM). */
static inline void signal_pcan(
    uint32_t *output, const uint32_t *input, const uint32_t *noise, const int16_t *gains, int32_t size, int32_t shift)
{
    for (int32_t at = 0; at < size; ++at) {
        int32_t gain = gains[noise[at] & 3];
        if (noise[at] > 2) {
            const int32_t bits = signal_bits(noise[at]);
            const int16_t *row = gains + 4 * bits - 6;
            const uint32_t scaled = bits < 11 ? noise[at] << (11 - bits) : noise[at] >> (bits - 11);
            const int32_t fraction = (int32_t)(scaled & 0x3FF);
            const uint32_t slope = (uint32_t)(((int32_t)row[2] * fraction) >> 5) + ((uint32_t)row[1] << 5);
            const int32_t product = (int32_t)(slope * (uint32_t)fraction + ((uint32_t)1 << 14));
            gain = (int16_t)((product >> 15) + row[0]);
        }
        const uint32_t ratio = (uint32_t)(((uint64_t)input[at] * (uint32_t)gain) >> shift);
        output[at] = ratio < 8192 ? (ratio * ratio) >> 20 : (ratio >> 6) - 64;
    }
}
