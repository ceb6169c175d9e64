/* The gates of a block of up to eight units: saturated sums of products with the inputs and with the hidden state,
 * [8] and 32 words later, rescaled, and their curve, curve_int16_{{ bits }}. scales: for
 * either multiplier, addend and shift of {{ "scale_either" if left else "scale_sum" }}. gates: memory for eight. */
static inline void {{ name }}(
    int16_t *gates, const int32_t *sums, const int32_t *scales, const uint16_t *table, int32_t units)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    for (; units > 0; units -= 4) {
        const int16x8_t first = vector_narrowed_{{ left }}(vldrwq_s32(sums), scales);
        const int16x8_t both = vqaddq_s16(first, vector_narrowed_{{ left }}(vldrwq_s32(sums + 32), scales + 3));
        vstrhq_s32(gates, vector_curve_{{ bits }}(vmulq_n_s32(vmovlbq_s16(both), 3), table));
        sums += 4;
        gates += 4;
    }
#else
    const int32_t factor = scales[0], offset = scales[1], shift = scales[2];
    const int32_t next_factor = scales[3], next_offset = scales[4], next_shift = scales[5];
    for (const int32_t *end = sums + units; sums != end; ++sums) {
        const int32_t first = saturate_int16({{ "scale_either" if left else "scale_sum" }}(sums[0], factor, offset, shift));
        const int32_t second = saturate_int16({{ "scale_either" if left else "scale_sum" }}(sums[32], next_factor, next_offset, next_shift));
        *gates++ = (int16_t)curve_int16_{{ bits }}(saturate_int16(first + second) * 3, table);
    }
#endif
}
