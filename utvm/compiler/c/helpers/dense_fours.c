#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && \
    !(defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1)
#define DENSE_WEIGHT int8_t
#define DENSE_STEP 4
#define DENSE_VALUE(at) \
    sum_0 += values[(at)] * weights[4 * (at)]; \
    sum_1 += values[(at)] * weights[4 * (at) + 1]; \
    sum_2 += values[(at)] * weights[4 * (at) + 2]; \
    sum_3 += values[(at)] * weights[4 * (at) + 3];
#else
/* Loads of single bytes take Thumb-1 longer. */
#define DENSE_WEIGHT int32_t
#define DENSE_STEP 1
#define DENSE_VALUE(at) \
    sum_0 += values[(at)] * (int8_t)((uint32_t)weights[(at)] & 255u); \
    sum_1 += values[(at)] * (int8_t)((uint32_t)weights[(at)] >> 8 & 255u); \
    sum_2 += values[(at)] * (int8_t)((uint32_t)weights[(at)] >> 16 & 255u); \
    sum_3 += values[(at)] * (int8_t)((uint32_t)weights[(at)] >> 24);
#endif

/* Multiplies one row of values with the weights of four channels at a time. words: for each four channels, and for each
 * value, their weights, the first in the lowest byte. scales: [channels][4]: bias with the input's zero point, multiplier,
 * offset, shift. */
static inline void {{ name }}(
    int8_t *output, const int8_t *row, int32_t length, const int32_t *words, const int32_t *scales, int32_t channels,
    int32_t low, int32_t high)
{
    for (; channels > 0; channels -= 4) {
        int32_t sum_0 = 0;
        int32_t sum_1 = 0;
        int32_t sum_2 = 0;
        int32_t sum_3 = 0;
        const int8_t *values = row;
        const int8_t *const end = row + length;
        const DENSE_WEIGHT *weights = (const DENSE_WEIGHT *)words;
        for (; end - values >= 4; values += 4) {
            DENSE_VALUE(0)
            DENSE_VALUE(1)
            DENSE_VALUE(2)
            DENSE_VALUE(3)
            weights += 4 * DENSE_STEP;
        }
        for (; values != end; ++values) {
            DENSE_VALUE(0)
            weights += DENSE_STEP;
        }
        {
            const int32_t sums[4] = {sum_0, sum_1, sum_2, sum_3};
            for (int32_t channel = 0; channel < 4 && channel < channels; ++channel) {
                scaled_pixels(output, &sums[channel], scales, 1, 1, low, high);
                ++output;
                scales += 4;
            }
        }
        words += length;
    }
}
