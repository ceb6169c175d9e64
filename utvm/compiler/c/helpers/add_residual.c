/* Adds two int8 tensors of different scales, as TensorFlow Lite does, from the first element to the last.
 * residual: for the result, then for the other: zero point, multiplier, half of what the shift drops, shift to the
 * right; then for the sum: multiplier, what is added before the shift, shift, lowest and highest value. */
static inline void add_residual(
    int8_t *output, const int8_t *result, const int8_t *other, const int32_t *residual, int32_t count)
{
    for (const int8_t *end = result + count; result != end; ++result, ++other) {
        const int32_t first = (*result - residual[0]) * (1 << 20);
        const int32_t second = (*other - residual[4]) * (1 << 20);
        const int32_t sum = scale_exact(first, residual[1], residual[2], residual[3]) +
                            scale_exact(second, residual[5], residual[6], residual[7]);
        const int32_t value = scale_sum(sum, residual[8], residual[9], residual[10]);
        *output++ = (int8_t)(value < residual[11] ? residual[11] : value > residual[12] ? residual[12] : value);
    }
}
