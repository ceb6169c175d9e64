/* As irfft_int32, of floats, divided by the length. */
static inline void irfft_float32(
    float *output, float *work, const float *input, const float *twiddles, const float *turns, int32_t count)
{
    work[0] = input[0] + input[2 * count];
    work[1] = input[0] - input[2 * count];
    for (int32_t at = 1; at <= count / 2; ++at) {
        const int32_t mirror = 2 * (count - at);
        float parts[4];
        fft_parts(parts, input + 2 * at, input + mirror, turns + 2 * (at - 1));
        work[2 * at] = parts[0] + parts[2];
        work[2 * at + 1] = parts[1] + parts[3];
        work[mirror] = parts[0] - parts[2];
        work[mirror + 1] = parts[3] - parts[1];
    }
    fft_float32(output, work, twiddles, count, -1);
    for (int32_t at = 0; at < 2 * count; ++at) {
        output[at] /= (float)(2 * count);
    }
}
