/* 2 * count real numbers of a spectrum, as kissfft computes them (KISS FFT 130, kiss_fftri). */
static inline void irfft_int32(
    int32_t *output, int32_t *work, const int32_t *input, const int32_t *twiddles, const int32_t *turns, int32_t count,
    int32_t bits)
{
    const int64_t half = (int32_t)(((uint32_t)1 << bits) - 1) / 2;
    work[0] = fft_fraction(fft_sum(input[0], 1, input[2 * count], bits) * half, bits);
    work[1] = fft_fraction(fft_sum(input[0], -1, input[2 * count], bits) * half, bits);
    for (int32_t at = 1; at <= count / 2; ++at) {
        const int32_t mirror = 2 * (count - at);
        int32_t parts[4];
        fft_split(parts, input + 2 * at, input + mirror, turns + 2 * (at - 1), bits);
        work[2 * at] = fft_sum(parts[0], 1, parts[2], bits);
        work[2 * at + 1] = fft_sum(parts[1], 1, parts[3], bits);
        work[mirror] = fft_sum(parts[0], -1, parts[2], bits);
        work[mirror + 1] = fft_sum(parts[3], -1, parts[1], bits);
    }
    fft_int32(output, work, twiddles, count, bits, -1);
}
