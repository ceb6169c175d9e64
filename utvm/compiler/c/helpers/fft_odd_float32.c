/* As fft_odd_int32, of floats, in the order of kissfft's sums. */
static inline void fft_odd_float32(
    float *result, const float *part, const float *first, const float *second, int32_t step, int32_t radix)
{
    for (int32_t axis = 0; axis < 2; ++axis) {
        const int32_t other = 1 - axis;
        const int32_t last = 2 * (radix - 1);
        const float way = axis == 0 ? 1.0f : -1.0f;
        const float sum = part[2 + axis] + part[last + axis];
        const float apart = part[2 + other] - part[last + other];
        if (radix == 3) {
            const float base = part[axis] - sum * 0.5f;
            const float side = way * (apart * first[1]);
            result[axis] = part[axis] + sum;
            result[step + axis] = base - side;
            result[2 * step + axis] = base + side;
            continue;
        }
        const float inner = part[4 + axis] + part[6 + axis];
        const float between = part[4 + other] - part[6 + other];
        const float near = part[axis] + sum * first[0] + inner * second[0];
        const float far = part[axis] + sum * second[0] + inner * first[0];
        const float narrow = way * (apart * first[1] + between * second[1]);
        const float wide = way * (between * first[1] - apart * second[1]);
        result[axis] = part[axis] + (sum + inner);
        result[step + axis] = near - narrow;
        result[4 * step + axis] = near + narrow;
        result[2 * step + axis] = far + wide;
        result[3 * step + axis] = far - wide;
    }
}
