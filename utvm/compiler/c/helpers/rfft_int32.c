/* Spectrum of 2 * count real numbers, count + 1 complex ones, as kissfft computes it (KISS FFT 130, kiss_fftr). */
static inline void rfft_int32(
    int32_t *output, int32_t *work, const int32_t *input, const int32_t *twiddles, const int32_t *turns, int32_t count,
    int32_t bits)
{
    const int64_t half = (int32_t)(((uint32_t)1 << bits) - 1) / 2;
    fft_int32(work, input, twiddles, count, bits, 1);
    const int32_t real = fft_fraction(work[0] * half, bits);
    const int32_t imaginary = fft_fraction(work[1] * half, bits);
    output[0] = fft_sum(real, 1, imaginary, bits);
    output[2 * count] = fft_sum(real, -1, imaginary, bits);
    output[1] = 0;
    output[2 * count + 1] = 0;
    for (int32_t at = 1; at <= count / 2; ++at) {
        const int32_t mirror = 2 * (count - at);
        int32_t parts[4];
        fft_split(parts, work + 2 * at, work + mirror, turns + 2 * (at - 1), bits);
        output[2 * at] = fft_sum(parts[0], 1, parts[2], 31) >> 1;
        output[2 * at + 1] = fft_sum(parts[1], 1, parts[3], 31) >> 1;
        output[mirror] = fft_sum(parts[0], -1, parts[2], 31) >> 1;
        output[mirror + 1] = fft_sum(parts[3], -1, parts[1], 31) >> 1;
    }
}
