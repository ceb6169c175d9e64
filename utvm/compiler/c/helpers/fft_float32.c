/* FFT of count complex numbers, a power of 2, in the order of kissfft's steps (KISS FFT 130). sign is -1 for the
 * inverse. */
static inline void fft_float32(
    float *work, const float *input, const float *twiddles, int32_t count, int32_t sign)
{
    for (int32_t at = 0; at < count; ++at) {
        const int32_t source = 2 * fft_place(at, count);
        work[2 * at] = input[source];
        work[2 * at + 1] = input[source + 1];
    }
    int32_t radix = (count & 0x55555555) == 0 ? 2 : 4;
    for (int32_t inner = 1; inner < count;) {
        const int32_t stride = count / (inner * radix);
        for (int32_t at = 0; at < count; at = (at + 1) % inner == 0 ? at + 1 + inner * (radix - 1) : at + 1) {
            float part[4][2];
            for (int32_t leg = 0; leg < radix; ++leg) {
                const float *value = work + 2 * (at + leg * inner);
                const float *turn = twiddles + 2 * (at % inner) * leg * stride;
                part[leg][0] = leg == 0 ? value[0] : value[0] * turn[0] - value[1] * turn[1];
                part[leg][1] = leg == 0 ? value[1] : value[0] * turn[1] + value[1] * turn[0];
            }
            for (int32_t axis = 0; axis < 2; ++axis) {
                float *result = work + 2 * at + axis;
                if (radix == 2) {
                    result[0] = part[0][axis] + part[1][axis];
                    result[2 * inner] = part[0][axis] - part[1][axis];
                    continue;
                }
                const float even = part[0][axis] + part[2][axis];
                const float odd = part[1][axis] + part[3][axis];
                const float base = part[0][axis] - part[2][axis];
                const float side = part[1][1 - axis] - part[3][1 - axis];
                const float turned = (axis == 0) == (sign > 0) ? side : -side;
                result[0] = even + odd;
                result[4 * inner] = even - odd;
                result[2 * inner] = base + turned;
                result[6 * inner] = base - turned;
            }
        }
        inner *= radix;
        radix = 4;
    }
}
