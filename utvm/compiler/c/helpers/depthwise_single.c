#if defined(__GNUC__)
/* Added one after the other: the compiler would need more registers than there are. */
#define SINGLE_ADD(at, weight) \
    sum += line[(at)] * (weight); \
    __asm__ volatile("" : "+r"(sum));
#else
#define SINGLE_ADD(at, weight) sum += line[(at)] * (weight);
#endif

/* Computes all pixels of one channel of a 3x3 depthwise convolution from its padded image. size: pixels of an output's
 * row, its rows, bytes of the image's row, columns and bytes from one window to the next. */
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int8_t *plane, const int32_t *size, const int8_t *weights, const int32_t *scales,
    int32_t channels)
{
    const int32_t weight_0 = weights[0];
    const int32_t weight_1 = weights[1];
    const int32_t weight_2 = weights[2];
    const int32_t weight_3 = weights[3];
    const int32_t weight_4 = weights[4];
    const int32_t weight_5 = weights[5];
    const int32_t weight_6 = weights[6];
    const int32_t weight_7 = weights[7];
    const int32_t weight_8 = weights[8];
    const int32_t pitch = size[2];
    const int32_t across = size[3];
    for (int32_t row = size[1]; row > 0; --row) {
        const int8_t *place = plane;
        for (const int8_t *const end = plane + size[0] * across; place != end; place += across) {
            const int8_t *line = place;
            int32_t sum = scales[0];
            SINGLE_ADD(0, weight_0)
            SINGLE_ADD(1, weight_3)
            SINGLE_ADD(2, weight_6)
            line += pitch;
            SINGLE_ADD(0, weight_1)
            SINGLE_ADD(1, weight_4)
            SINGLE_ADD(2, weight_7)
            line += pitch;
            SINGLE_ADD(0, weight_2)
            SINGLE_ADD(1, weight_5)
            SINGLE_ADD(2, weight_8)
            *output = (int8_t)saturate_int8(scale_folded(sum, scales[1], scales[2], scales[3]));
            output += channels;
        }
        plane += size[4];
    }
}

