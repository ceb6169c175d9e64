#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
#include <arm_mve.h>

/* {{ "scale_either" if left else "scale_sum" }} of four numbers, saturated to 16 bits, in the even lanes. scale: multiplier, addend, shift. */
static inline int16x8_t {{ name }}(int32x4_t sums, const int32_t *scale)
{
    const int32_t shift = scale[2];
    {% if left %}
    if (shift <= 0) {
        return vqmovnbq_s32(vdupq_n_s16(0), vqrdmulhq_n_s32(vshlq_r_s32(sums, -shift), scale[0]));
    }
    {% endif %}
    const int32x4_t product = vqrdmulhq_n_s32(sums, scale[0]);
    return vqmovnbq_s32(vdupq_n_s16(0), vrshlq_n_s32(vaddq_s32(product, vshrq_n_s32(product, 31)), -shift));
}
#endif
