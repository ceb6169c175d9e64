/* One butterfly of 3 or 5 turned numbers, part, as kissfft computes it (KISS FFT 130, FIXED_POINT): result has them step
 * apart, and twiddles the turn of one leg, then, for 5, that of two. */
static inline void fft_odd_int32(
    int32_t *result, const int32_t *part, const int32_t *first, const int32_t *second, int32_t step, int32_t radix,
    int32_t bits)
{
    for (int32_t axis = 0; axis < 2; ++axis) {
        const int32_t other = 1 - axis;
        const int32_t way = axis == 0 ? 1 : -1;
        const int32_t last = 2 * (radix - 1);
        const int32_t sum = fft_sum(part[2 + axis], 1, part[last + axis], bits);
        const int64_t apart = fft_sum(part[2 + other], -1, part[last + other], bits);
        if (radix == 3) {
            const int32_t base = fft_sum(part[axis], -1, sum >> 1, bits);
            const int32_t side = fft_fraction(apart * first[1], bits);
            result[axis] = fft_sum(part[axis], 1, sum, bits);
            result[step + axis] = fft_sum(base, -way, side, bits);
            result[2 * step + axis] = fft_sum(base, way, side, bits);
            continue;
        }
        const int32_t inner = fft_sum(part[4 + axis], 1, part[6 + axis], bits);
        const int64_t between = fft_sum(part[4 + other], -1, part[6 + other], bits);
        const int32_t near = fft_sum(
            fft_sum(part[axis], 1, fft_fraction((int64_t)sum * first[0], bits), bits), 1,
            fft_fraction((int64_t)inner * second[0], bits), bits);
        const int32_t far = fft_sum(
            fft_sum(part[axis], 1, fft_fraction((int64_t)sum * second[0], bits), bits), 1,
            fft_fraction((int64_t)inner * first[0], bits), bits);
        const int32_t narrow =
            fft_sum(fft_fraction(apart * first[1], bits), 1, fft_fraction(between * second[1], bits), bits);
        const int32_t wide =
            fft_sum(fft_fraction(between * first[1], bits), -1, fft_fraction(apart * second[1], bits), bits);
        result[axis] = fft_sum(fft_sum(part[axis], 1, sum, bits), 1, inner, bits);
        result[step + axis] = fft_sum(near, -way, narrow, bits);
        result[4 * step + axis] = fft_sum(near, way, narrow, bits);
        result[2 * step + axis] = fft_sum(far, way, wide, bits);
        result[3 * step + axis] = fft_sum(far, -way, wide, bits);
    }
}
