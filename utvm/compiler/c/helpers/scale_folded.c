/* sum * multiplier / 2^30, moved by the offset, shifted to the right: TensorFlow Lite's two roundings in one, its halves
 * and the output's zero point in the offset. sum is below 2^28. Halves go up also below the zero point, which is right
 * where nothing below it is let through. */
static inline int32_t scale_folded(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    return (multiply_upper(sum * 4, multiplier) + offset) >> shift;
}
