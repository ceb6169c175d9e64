/* As fft_split, of floats. */
static inline void fft_parts(float *parts, const float *low, const float *high, const float *turn)
{
    const float real = low[0] - high[0];
    const float imaginary = low[1] + high[1];
    parts[0] = low[0] + high[0];
    parts[1] = low[1] - high[1];
    parts[2] = real * turn[0] - imaginary * turn[1];
    parts[3] = real * turn[1] + imaginary * turn[0];
}
