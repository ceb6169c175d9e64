/* As rfft_int32, of floats. */
static inline void rfft_float32(
    float *output, float *work, const float *input, const float *twiddles, const float *turns, int32_t count)
{
    fft_float32(work, input, twiddles, count, 1);
    output[0] = work[0] + work[1];
    output[2 * count] = work[0] - work[1];
    output[1] = 0.0f;
    output[2 * count + 1] = 0.0f;
    for (int32_t at = 1; at <= count / 2; ++at) {
        const int32_t mirror = 2 * (count - at);
        float parts[4];
        fft_parts(parts, work + 2 * at, work + mirror, turns + 2 * (at - 1));
        output[2 * at] = (parts[0] + parts[2]) * 0.5f;
        output[2 * at + 1] = (parts[1] + parts[3]) * 0.5f;
        output[mirror] = (parts[0] - parts[2]) * 0.5f;
        output[mirror + 1] = (parts[3] - parts[1]) * 0.5f;
    }
}
