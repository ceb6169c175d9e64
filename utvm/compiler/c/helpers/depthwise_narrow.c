#if defined(__GNUC__)
/* Added one after the other: the compiler would need more registers than there are. */
#define NARROW_ADD(sum, at, weight) \
    sum += (place[at] - zero) * (weight); \
    __asm__ volatile("" : "+r"(sum));
#else
#define NARROW_ADD(sum, at, weight) sum += (place[at] - zero) * (weight);
#endif

/* Computes a row of a depthwise convolution's output, four channels at a time, from the image itself; padding is not
 * read. weights: a word for four channels and one place, [channels / 4][rows][columns], the first channel lowest.
 * scales: [channels][4]: bias without the input's zero point, multiplier, offset of scale_folded, and shift. */
static inline void depthwise_narrow(
    int8_t *output, const int8_t *image, const int32_t *geometry, const int32_t *weights, const int32_t *scales,
    int32_t row, int32_t low, int32_t high)
{
    const int32_t channels = geometry[2];
    const int32_t zero = geometry[12];
    const int32_t y = row * geometry[5] - geometry[9];
    const int32_t across = geometry[8] * channels;
    const int32_t down = geometry[7] * geometry[1] * channels;
    int32_t top = 0;
    int32_t bottom = geometry[3];
    while (top < bottom && y + top * geometry[7] < 0) {
        ++top;
    }
    while (bottom > top && y + (bottom - 1) * geometry[7] >= geometry[0]) {
        --bottom;
    }
    for (int32_t column = 0; column < geometry[11]; ++column) {
        const int32_t x = column * geometry[6] - geometry[10];
        int32_t left = 0;
        int32_t right = geometry[4];
        while (left < right && x + left * geometry[8] < 0) {
            ++left;
        }
        while (right > left && x + (right - 1) * geometry[8] >= geometry[1]) {
            --right;
        }
        for (int32_t channel = 0; channel < channels; channel += 4) {
            const int32_t *line_weights = weights + (channel / 4 * geometry[3] + top) * geometry[4] + left;
            const int32_t *const scale = scales + 4 * channel;
            const int8_t *line = image + (y * geometry[1] + x) * channels + top * down + left * across + channel;
            int32_t first = scale[0];
            int32_t second = scale[4];
            int32_t third = scale[8];
            int32_t fourth = scale[12];
            for (int32_t filter_row = top; filter_row < bottom; ++filter_row) {
                const int8_t *place = line;
                const int32_t *word = line_weights;
                for (const int32_t *const end = word + (right - left); word != end;) {
                    const int32_t four = *word++;
                    NARROW_ADD(first, 0, (int8_t)four)
                    NARROW_ADD(second, 1, (int8_t)(four >> 8))
                    NARROW_ADD(third, 2, (int8_t)(four >> 16))
                    NARROW_ADD(fourth, 3, four >> 24)
                    place += across;
                }
                line += down;
                line_weights += geometry[4];
            }
            first = scale_signed(first, scale[1], scale[2], scale[3]);
            second = scale_signed(second, scale[5], scale[6], scale[7]);
            third = scale_signed(third, scale[9], scale[10], scale[11]);
            fourth = scale_signed(fourth, scale[13], scale[14], scale[15]);
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
        }
    }
}
