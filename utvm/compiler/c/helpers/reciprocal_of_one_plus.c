/* Returns 1 / (1 + value) for a value in [0, 1), both with 31 fractional bits, by three steps of Newton's method,
 * rounded as gemmlowp's one_over_one_plus_x_for_x_in_0_1. */
static inline int32_t reciprocal_of_one_plus(int32_t value)
{
    const int32_t half = (int32_t)(((int64_t)value + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + multiply_high(half, -1010580540);
    for (int32_t step = 0; step < 3; ++step) {
        x += 4 * multiply_high(x, ((int32_t)1 << 29) - multiply_high(half, x));
    }
    return x >= ((int32_t)1 << 30) ? INT32_MAX : x * 2;
}
