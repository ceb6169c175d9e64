/* The halves of a real signal's spectrum at a place and at its mirror: their sum, and their difference turned. */
static inline void fft_split(int32_t *parts, const int32_t *low, const int32_t *high, const int32_t *turn, int32_t bits)
{
    const int64_t half = (int32_t)(((uint32_t)1 << bits) - 1) / 2;
    const int32_t one[2] = {fft_fraction(low[0] * half, bits), fft_fraction(low[1] * half, bits)};
    const int32_t two[2] = {
        fft_fraction(high[0] * half, bits), fft_fraction(fft_sum(0, -1, high[1], bits) * half, bits)};
    const int64_t real = fft_sum(one[0], -1, two[0], bits);
    const int64_t imaginary = fft_sum(one[1], -1, two[1], bits);
    parts[0] = fft_sum(one[0], 1, two[0], bits);
    parts[1] = fft_sum(one[1], 1, two[1], bits);
    parts[2] = fft_fraction(real * turn[0] - imaginary * turn[1], bits);
    parts[3] = fft_fraction(real * turn[1] + imaginary * turn[0], bits);
}
