/* FFT of count complex numbers of bits fractional bits, a product of 2, 3 and 5, as kissfft computes it (KISS FFT 130,
 * FIXED_POINT): each step divides by its radix. sign is -1 for the inverse. */
static inline void fft_int32(
    int32_t *work, const int32_t *input, const int32_t *twiddles, int32_t count, int32_t bits, int32_t sign)
{
    const int32_t largest = (int32_t)(((uint32_t)1 << bits) - 1);
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
        for (int32_t first = 0; first < count * 2; first += 2 * inner * radix) {
            for (int32_t at = 0; at < inner; ++at) {
                int32_t part[10];
                for (int32_t leg = 0; leg < radix; ++leg) {
                    const int32_t *value = work + first + 2 * (at + leg * inner);
                    const int64_t real = fft_fraction((int64_t)value[0] * (largest / radix), bits);
                    const int64_t imaginary = fft_fraction((int64_t)value[1] * (largest / radix), bits);
                    const int32_t *turn = twiddles + 2 * at * leg * stride;
                    part[2 * leg] = (int32_t)real;
                    part[2 * leg + 1] = (int32_t)imaginary;
                    if (leg > 0) {
                        part[2 * leg] = fft_fraction(real * turn[0] - imaginary * turn[1], bits);
                        part[2 * leg + 1] = fft_fraction(real * turn[1] + imaginary * turn[0], bits);
                    }
                }
                if (powers == 0 && radix % 2 != 0) {
                    const int32_t *turn = twiddles + 2 * stride * inner;
                    fft_odd_int32(
                        work + first + 2 * at, part, turn, twiddles + 4 * stride * inner, 2 * inner, radix, bits);
                    continue;
                }
                for (int32_t axis = 0; axis < 2; ++axis) {
                    int32_t *result = work + first + 2 * at + axis;
                    if (radix == 2) {
                        result[0] = fft_sum(part[axis], 1, part[2 + axis], bits);
                        result[2 * inner] = fft_sum(part[axis], -1, part[2 + axis], bits);
                        continue;
                    }
                    const int32_t way = axis == 0 ? sign : -sign;
                    const int32_t even = fft_sum(part[axis], 1, part[4 + axis], bits);
                    const int32_t odd = fft_sum(part[2 + axis], 1, part[6 + axis], bits);
                    const int32_t base = fft_sum(part[axis], -1, part[4 + axis], bits);
                    const int32_t side = fft_sum(part[3 - axis], -1, part[7 - axis], bits);
                    result[0] = fft_sum(even, 1, odd, bits);
                    result[4 * inner] = fft_sum(even, -1, odd, bits);
                    result[2 * inner] = fft_sum(base, way, side, bits);
                    result[6 * inner] = fft_sum(base, -way, side, bits);
                }
            }
        }
        inner *= radix;
    }
}
