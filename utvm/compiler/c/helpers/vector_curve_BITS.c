#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
#include <arm_mve.h>

/* curve_int16_{{ bits }} of four numbers. */
static inline int32x4_t {{ name }}(int32x4_t value, const uint16_t *table)
{
    int32x4_t place = vshrq_n_s32(value, {{ bits }});
    {% if bits == 8 %}
    place = vminq_s32(vmaxq_s32(place, vdupq_n_s32(-256)), vdupq_n_s32(255));
    {% endif %}
    const uint32x4_t at = vreinterpretq_u32_s32(vaddq_n_s32(place, 256));
    const int32x4_t low = vreinterpretq_s32_u32(vldrhq_gather_shifted_offset_u32(table - 256, at));
    const int32x4_t next = vreinterpretq_s32_u32(vldrhq_gather_shifted_offset_u32(table - 255, at));
    const int32x4_t rest = vandq_s32(value, vdupq_n_s32({{ 2**bits - 1 }}));
    const int32x4_t rounded = vaddq_n_s32(vaddq_s32(vshlq_n_s32(low, {{ bits }}), vshrq_n_s32(value, 31)), {{ 2**9 if bits == 9 else 2**7 - 2**23 }});
    return vshrq_n_s32(vaddq_s32(rounded, vmulq_s32(rest, vsubq_s32(next, low))), {{ 10 if bits == 9 else 8 }});
}
#endif
