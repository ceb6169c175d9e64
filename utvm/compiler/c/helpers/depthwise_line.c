#if defined(__GNUC__)
/* Added one after the other: the compiler would need more registers than there are. */
#define DEPTHWISE_ADD(at) \
    sum += place[(at)] * weight_##at; \
    __asm__ volatile("" : "+r"(sum));
#else
#define DEPTHWISE_ADD(at) sum += place[(at)] * weight_##at;
#endif
#define DEPTHWISE_NINE \
    DEPTHWISE_ADD(0) \
    DEPTHWISE_ADD(1) \
    DEPTHWISE_ADD(2) \
    DEPTHWISE_ADD(3) \
    DEPTHWISE_ADD(4) \
    DEPTHWISE_ADD(5) \
    DEPTHWISE_ADD(6) \
    DEPTHWISE_ADD(7) \
    DEPTHWISE_ADD(8)

/* Computes some pixels of a row of a depthwise convolution's output, from column on, one channel after the other. plane
 * is scratch, for what they see of a channel. weights: [channels][columns][rows]. scales: [channels][4]: bias with the
 * input's zero point, multiplier, offset of scale_folded, and shift. zero: of the output. copies: how many channels of
 * output each of the input has. */
static inline void depthwise_line(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *plane, int32_t row, int32_t column,
    int32_t pixels, const int8_t *weights, const int32_t *scales, int32_t copies, int32_t low, int32_t high, int32_t zero)
{
    const int32_t inputs = geometry[2];
    const int32_t channels = inputs * copies;
    const int32_t rows = geometry[3];
    const int32_t columns = geometry[4];
    const int32_t apart = geometry[8] * rows;
    const int32_t step = geometry[6] * rows;
    const int32_t seen = (pixels - 1) * geometry[6] + (columns - 1) * geometry[8] + 1;
    const int32_t begin = column * geometry[6] - geometry[10];
    const int32_t left = begin >= 0 ? 0 : -begin < seen ? -begin : seen;
    const int32_t right = geometry[1] - begin < left ? left : geometry[1] - begin < seen ? geometry[1] - begin : seen;
    const int32_t line = geometry[1] * inputs;
    const int32_t top = row * geometry[5] - geometry[9];
    const int32_t down = geometry[7];
    const int8_t *const behind = plane + pixels * step;
    int8_t *const inside = plane + left * rows;
    const int8_t *const inside_end = plane + right * rows;
    const bool folded = zero == INT8_MIN && low == INT8_MIN && high == INT8_MAX;
    const bool nine = folded && rows == 3 && columns == 3 && apart == 3;
#if defined(DEPTHWISE_THREES)
    const int32_t size[5] = {pixels, 1, seen, geometry[6], 0};
#endif
    const bool dense = apart == rows;
    const int32_t taps = dense ? 1 : columns;
    const int32_t together = dense ? rows * columns : rows;
    int32_t first = 0;
    int32_t last = rows;
    while (first < last && top + first * down < 0) {
        ++first;
    }
    while (last > first && top + (last - 1) * down >= geometry[0]) {
        --last;
    }
    image += left < right ? (begin + left) * inputs : 0;
    memset(plane, geometry[12], (size_t)(seen * rows));
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int8_t *place = plane;
        int8_t *to = output++;
        if (copies == 1 || channel % copies == 0) {
            const int8_t *source = image++ + (first < last ? top + first * down : 0) * line;
#if defined(DEPTHWISE_THREES)
            if (nine) {
                copy_rows(plane + first * seen + left, source, seen, inputs, down * line, right - left, last - first);
            } else
#endif
            {
                depthwise_plane(inside, inside_end, source, inputs, rows, down * line, first, last);
            }
        }
        if (nine) {
#if defined(DEPTHWISE_THREES)
            depthwise_nine(to, plane, size, weights, scales, channels);
#else
            const int32_t weight_0 = weights[0];
            const int32_t weight_1 = weights[1];
            const int32_t weight_2 = weights[2];
            const int32_t weight_3 = weights[3];
            const int32_t weight_4 = weights[4];
            const int32_t weight_5 = weights[5];
            const int32_t weight_6 = weights[6];
            const int32_t weight_7 = weights[7];
            const int32_t weight_8 = weights[8];
            const int32_t bias = scales[0];
            const int32_t multiplier = scales[1];
            const int32_t offset = scales[2];
            const int32_t shift = scales[3];
            for (; place != behind; place += step) {
                int32_t sum = bias;
                DEPTHWISE_NINE
                *to = (int8_t)saturate_int8(scale_folded(sum, multiplier, offset, shift));
                to += channels;
            }
#endif
        } else {
            for (; place != behind; place += step) {
                const int8_t *weight = weights;
                int32_t sum = 0;
                for (int32_t tap = 0; tap < taps; ++tap) {
                    const int8_t *value = place + tap * apart;
                    for (const int8_t *end = value + together; value != end; ++value) {
                        sum += *value * *weight++;
                    }
                }
                scaled_pixels(to, &sum, scales, channels, 1, low, high);
                to += channels;
            }
        }
        weights += rows * columns;
        scales += 4;
    }
}
