#if defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN)
#include <arm_neon.h>

/* Adds up each of four vectors, and a bias to it; multiplies the sums and shifts them, as requantize does. scale: four
 * multipliers, four shifts to the left, none of which is positive. */
static inline int16x4_t vector_scaled(
    int32x4_t first, int32x4_t second, int32x4_t third, int32x4_t fourth, int32x4_t bias, const int32_t *scale)
{
    const int32x2_t two = vpadd_s32(
        vpadd_s32(vget_low_s32(first), vget_high_s32(first)), vpadd_s32(vget_low_s32(second), vget_high_s32(second)));
    const int32x2_t next_two = vpadd_s32(
        vpadd_s32(vget_low_s32(third), vget_high_s32(third)), vpadd_s32(vget_low_s32(fourth), vget_high_s32(fourth)));
    const int32x4_t sums = vaddq_s32(bias, vcombine_s32(two, next_two));
    const int32x4_t shifts = vld1q_s32(scale + 4);
    const int32x4_t product = vqrdmulhq_s32(sums, vld1q_s32(scale));
    const int32x4_t away = vshrq_n_s32(vandq_s32(product, shifts), 31);
    return vqmovn_s32(vrshlq_s32(vqaddq_s32(product, away), shifts));
}
#endif
