#if defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN)
#include <arm_neon.h>
/* Two products of -128 by -128 are more than 16 bits hold: each is added to 32 bits before it meets another. */
#define VECTOR_PRODUCTS(sum, values) \
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(values), vget_low_s8(weights))); \
    sum = vpadalq_s16(sum, vmull_s8(vget_high_s8(values), vget_high_s8(weights)));
#define VECTOR_CHANNEL(at, sum, sum_of_second) \
    weights = vld1q_s8(bytes + 16 * (at)); \
    VECTOR_PRODUCTS(sum, one) \
    VECTOR_PRODUCTS(sum_of_second, other)
#endif

/* vector_tiles of pairs of pixels, and of NEON where there is it. */
static inline void vector_pairs(const struct vector_tiles *call, int32_t unrolled, int32_t rounds)
{
#if defined(VECTOR_PRODUCTS)
    const int16x8_t zero = vdupq_n_s16((int16_t)call->zero);
    const int16x8_t low = vdupq_n_s16((int16_t)call->low);
    const int16x8_t high = vdupq_n_s16((int16_t)call->high);
    for (int32_t pair = 0; pair < call->pairs; ++pair) {
        int8_t *output = call->output + pair * call->output_next;
        const int32_t *stream = call->stream;
        while (stream != call->end) {
            const int8_t *first = call->first + pair * call->next;
            const int8_t *second = call->second + pair * call->next;
            const int32x4_t bias = vld1q_s32(stream);
            const int8_t *bytes = (const int8_t *)(stream + 4);
            int32x4_t sum_0 = vdupq_n_s32(0);
            int32x4_t sum_1 = sum_0;
            int32x4_t sum_2 = sum_0;
            int32x4_t sum_3 = sum_0;
            int32x4_t sum_4 = sum_0;
            int32x4_t sum_5 = sum_0;
            int32x4_t sum_6 = sum_0;
            int32x4_t sum_7 = sum_0;
            for (int32_t round = 0; round < rounds; ++round) {
                for (int32_t chunk = 0; chunk < unrolled; ++chunk) {
                    const int8x16_t one = vld1q_s8(first);
                    const int8x16_t other = vld1q_s8(second);
                    int8x16_t weights;
                    VECTOR_CHANNEL(0, sum_0, sum_4)
                    VECTOR_CHANNEL(1, sum_1, sum_5)
                    VECTOR_CHANNEL(2, sum_2, sum_6)
                    VECTOR_CHANNEL(3, sum_3, sum_7)
                    first += 16;
                    second += 16;
                    bytes += 64;
                }
                first += call->step;
                second += call->step;
            }
            stream = (const int32_t *)bytes;
            {
                const int16x4_t here = vector_scaled(sum_0, sum_1, sum_2, sum_3, bias, stream);
                const int16x4_t there = vector_scaled(sum_4, sum_5, sum_6, sum_7, bias, stream);
                const int16x8_t all = vqaddq_s16(vcombine_s16(here, there), zero);
                int8_t made[8];
                vst1_s8(made, vmovn_s16(vminq_s16(vmaxq_s16(all, low), high)));
                stream += 8;
                const int32_t mask = stream == call->end ? call->mask : 0xFFFF;
                if (mask == 0xFFFF) {
                    memcpy(output, made, 4);
                    memcpy(output + call->apart, made + 4, 4);
                } else {
                    for (int32_t channel = 0; (mask >> (4 * channel)) != 0; ++channel) {
                        output[channel] = made[channel];
                        output[channel + call->apart] = made[channel + 4];
                    }
                }
                output += 4;
            }
        }
    }
#else
    vector_tiles(call, unrolled, rounds, 2);
#endif
}
