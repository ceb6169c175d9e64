/* Adds two int8 tensors of different scales, as TensorFlow Lite does, from the first element to the last. tables: what
 * each value of the result is in the sum, the lowest first, and each of the other, 256 words each; then multiplier,
 * offset and shift for the sum, lowest and highest value. */
static inline void add_tables(
    int8_t *output, const int8_t *result, const int8_t *other, const int32_t *tables, int32_t count)
{
    const int32_t *const first = tables + 128;
    const int32_t *const second = tables + 384;
    const int32_t multiplier = tables[512];
    const int32_t offset = tables[513];
    const int32_t shift = tables[514];
    const int32_t low = tables[515];
    const int32_t high = tables[516];
    for (const int8_t *end = result + count; result != end; ++result, ++other) {
        const int32_t value = scale_signed(first[*result] + second[*other], multiplier, offset, shift);
        *output++ = (int8_t)(value < low ? low : value > high ? high : value);
    }
}
