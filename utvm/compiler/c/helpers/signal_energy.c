/* Sums of squares of the complex numbers first to last - 1 of a spectrum (signal/src/energy.cc of TFLM); the others,
 * which TFLM leaves as they are, become 0. */
static inline void signal_energy(uint32_t *output, const int16_t *input, int32_t size, int32_t first, int32_t last)
{
    for (int32_t at = 0; at < size; ++at) {
        const int32_t real = at < first || at >= last ? 0 : input[2 * at];
        const int32_t imaginary = at < first || at >= last ? 0 : input[2 * at + 1];
        output[at] = (uint32_t)(real * real) + (uint32_t)(imaginary * imaginary);
    }
}
