/* FFT of count complex numbers, a product of 2, 3 and 5, in the order of kissfft's steps (KISS FFT 130). sign is -1 for
 * the inverse. */
static inline void fft_float32(
    float *work, const float *input, const float *twiddles, int32_t count, int32_t sign)
{
    for (int32_t at = 0; at < count; ++at) {
        const int32_t source = 2 * fft_place(at, count);
        work[2 * at] = input[source];
        work[2 * at + 1] = input[source + 1];
    }
    const int32_t powers = (count & (count - 1)) == 0 ? 1 : 0;
    int32_t inner = 1;
    while (inner < count) {
        const int32_t radix = fft_radix(count / inner, powers);
        const int32_t stride = count / (inner * radix);
        for (int32_t at = 0; at < count; at = (at + 1) % inner == 0 ? at + 1 + inner * (radix - 1) : at + 1) {
            float part[10];
            for (int32_t leg = 0; leg < radix; ++leg) {
                const float *value = work + 2 * (at + leg * inner);
                const float *turn = twiddles + 2 * (at % inner) * leg * stride;
                part[2 * leg] = leg == 0 ? value[0] : value[0] * turn[0] - value[1] * turn[1];
                part[2 * leg + 1] = leg == 0 ? value[1] : value[0] * turn[1] + value[1] * turn[0];
            }
            if (powers == 0 && radix % 2 != 0) {
                const float *turn = twiddles + 2 * stride * inner;
                fft_odd_float32(work + 2 * at, part, turn, twiddles + 4 * stride * inner, 2 * inner, radix);
                continue;
            }
            for (int32_t axis = 0; axis < 2; ++axis) {
                float *result = work + 2 * at + axis;
                if (radix == 2) {
                    result[0] = part[axis] + part[2 + axis];
                    result[2 * inner] = part[axis] - part[2 + axis];
                    continue;
                }
                const float even = part[axis] + part[4 + axis];
                const float odd = part[2 + axis] + part[6 + axis];
                const float base = part[axis] - part[4 + axis];
                const float side = part[3 - axis] - part[7 - axis];
                const float turned = (axis == 0) == (sign > 0) ? side : -side;
                result[0] = even + odd;
                result[4 * inner] = even - odd;
                result[2 * inner] = base + turned;
                result[6 * inner] = base - turned;
            }
        }
        inner *= radix;
    }
}
