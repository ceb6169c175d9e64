/* The cell state and the hidden state of a block of up to eight units, from gates, [gates][8]. scales: as the last
 * numbers of lstm_step. */
static inline void {{ name }}(
    int8_t *output, int16_t *state, const int16_t *gates, const int32_t *scales, const uint16_t *table, int32_t units)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    for (; units > 0; units -= 4) {
        const mve_pred16_t some = vctp32q((uint32_t)units);
        const int32x4_t before = vmulq_s32(vldrhq_s32(gates), vldrhq_z_s32(state, some));
        const int32x4_t entered = vmulq_s32(vldrhq_s32(gates + 8), vldrhq_s32(gates + 16));
        const int16x8_t sum = vqaddq_s16(vector_narrowed_0(before, scales), vector_narrowed_0(entered, scales + 3));
        const int32x4_t cell = vmaxq_s32(vminq_s32(vmovlbq_s16(sum), vdupq_n_s32(scales[13])), vdupq_n_s32(scales[12]));
        const int32x4_t place = vshlq_r_s32(vaddq_n_s32(vmulq_n_s32(cell, scales[9]), scales[10]), -scales[11]);
        const int32x4_t product = vmulq_s32(vector_curve_8(place, table), vldrhq_s32(gates + 24));
        const int16x8_t value = vqaddq_n_s16(vector_narrowed_0(product, scales + 6), (int16_t)scales[14]);
        vstrhq_p_s32(state, cell, some);
        vstrbq_p_s32(output, vmovlbq_s16(vmovlbq_s8(vqmovnbq_s16(vdupq_n_s8(0), value))), some);
        state += 4;
        gates += 4;
        output += 4;
    }
#else
    for (; units > 0; --units) {
        const int32_t before = saturate_int16(scale_sum(gates[0] * *state, scales[0], scales[1], scales[2]));
        const int32_t entered = saturate_int16(scale_sum(gates[8] * gates[16], scales[3], scales[4], scales[5]));
        const int32_t sum = saturate_int16(before + entered);
        const int32_t cell = sum < scales[12] ? scales[12] : sum > scales[13] ? scales[13] : sum;
        const int32_t curve = curve_int16_8((cell * scales[9] + scales[10]) >> scales[11], table);
        const int32_t value = scale_sum(curve * gates[24], scales[6], scales[7], scales[8]) + scales[14];
        *state++ = (int16_t)cell;
        *output++ = (int8_t)saturate_int8(value);
        ++gates;
    }
#endif
}
