#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
/* Adds four channels' products at one place of a filter; place is where they are, after the window's address. */
#define DEPTHWISE_TAP(place) \
    "ldr %[a], [%[line]" place "]\n" \
    "ldr %[b], [%[weights]], #4\n" \
    "sxtb16 %[c], %[a]\n" \
    "sxtb16 %[d], %[b]\n" \
    "sxtb16 %[a], %[a], ror #8\n" \
    "sxtb16 %[b], %[b], ror #8\n" \
    "smlabb %[first], %[c], %[d], %[first]\n" \
    "smlatt %[third], %[c], %[d], %[third]\n" \
    "smlabb %[second], %[a], %[b], %[second]\n" \
    "smlatt %[fourth], %[a], %[b], %[fourth]\n"
#define DEPTHWISE_ROW DEPTHWISE_TAP("") DEPTHWISE_TAP(", %[channels]") DEPTHWISE_TAP(", %[channels], lsl #1")
#define DEPTHWISE_ASSEMBLY(text, value) \
    __asm__(text \
            : [more] "+r"(value), [first] "+r"(first), [second] "+r"(second), [third] "+r"(third), [fourth] "+r"(fourth), \
              [weights] "+r"(weights), [line] "+r"(line), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d) \
            : [channels] "r"(channels) \
            : "cc", "memory")
#endif

/* Computes one pixel of a depthwise convolution, four channels at a time.
 * window: the filter's first value; stride: from one of its rows to the next. weights: a word for four channels and
 * one place, [channels / 4][rows][columns], the first channel lowest. scales: [channels][3], of scale_sum. No sum
 * may overflow. */
static inline void depthwise_pixel(
    int8_t *output, const int8_t *window, int32_t stride, const int32_t *geometry, const int32_t *weights,
    const int32_t *bias, const int32_t *scales, int32_t low, int32_t high)
{
    const int32_t channels = geometry[2];
    const int32_t rows = geometry[3];
    const int32_t columns = geometry[4];
    for (const int8_t *end = window + channels; window != end; window += 4) {
        int32_t first = bias[0];
        int32_t second = bias[1];
        int32_t third = bias[2];
        int32_t fourth = bias[3];
        const int8_t *line = window;
#if defined(DEPTHWISE_TAP)
        uint32_t a, b, c, d;
        if (rows == 3 && columns == 3) {
            DEPTHWISE_ASSEMBLY(
                DEPTHWISE_ROW "add %[line], %[more]\n" DEPTHWISE_ROW "add %[line], %[more]\n" DEPTHWISE_ROW, stride);
        } else {
            for (int32_t row = 0; row < rows; ++row) {
                int32_t count = columns;
                line = window + row * stride;
                DEPTHWISE_ASSEMBLY(
                    "1:\n" DEPTHWISE_TAP("") "add %[line], %[channels]\nsubs %[more], #1\nbne 1b\n", count);
            }
        }
#else
        for (int32_t row = 0; row < rows; ++row) {
            for (int32_t column = 0; column < columns; ++column) {
                const uint32_t word = (uint32_t)*weights++;
                const int8_t *place = line + column * channels;
                first += place[0] * (int8_t)(word & 255u);
                second += place[1] * (int8_t)((word >> 8) & 255u);
                third += place[2] * (int8_t)((word >> 16) & 255u);
                fourth += place[3] * (int8_t)(word >> 24);
            }
            line += stride;
        }
#endif
        first = scale_sum(first, scales[0], scales[1], scales[2]);
        second = scale_sum(second, scales[3], scales[4], scales[5]);
        third = scale_sum(third, scales[6], scales[7], scales[8]);
        fourth = scale_sum(fourth, scales[9], scales[10], scales[11]);
        if (low == INT8_MIN && high == INT8_MAX) {
            output[0] = (int8_t)saturate_int8(first);
            output[1] = (int8_t)saturate_int8(second);
            output[2] = (int8_t)saturate_int8(third);
            output[3] = (int8_t)saturate_int8(fourth);
        } else {
            output[0] = (int8_t)(first < low ? low : first > high ? high : first);
            output[1] = (int8_t)(second < low ? low : second > high ? high : second);
            output[2] = (int8_t)(third < low ? low : third > high ? high : third);
            output[3] = (int8_t)(fourth < low ? low : fourth > high ? high : fourth);
        }
        output += 4;
        bias += 4;
        scales += 12;
    }
}
