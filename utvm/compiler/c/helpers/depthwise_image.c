#if defined(__GNUC__)
/* Added one after the other: the compiler would need more registers than there are. */
#define IMAGE_ADD(at, weight) \
    sum += line[(at)] * (weight); \
    __asm__ volatile("" : "+r"(sum));
#else
#define IMAGE_ADD(at, weight) sum += line[(at)] * (weight);
#endif

/* Computes all pixels of one channel of a 3x3 depthwise convolution from its padded image. size: pixels of an output's
 * row, its rows, bytes of the image's row, columns and bytes from one window to the next. */
static __attribute__((noinline)) void depthwise_image_channel(
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
            IMAGE_ADD(0, weight_0)
            IMAGE_ADD(1, weight_3)
            IMAGE_ADD(2, weight_6)
            line += pitch;
            IMAGE_ADD(0, weight_1)
            IMAGE_ADD(1, weight_4)
            IMAGE_ADD(2, weight_7)
            line += pitch;
            IMAGE_ADD(0, weight_2)
            IMAGE_ADD(1, weight_5)
            IMAGE_ADD(2, weight_8)
            *output = (int8_t)saturate_int8(scale_folded(sum, scales[1], scales[2], scales[3]));
            output += channels;
        }
        plane += size[4];
    }
}

/* Computes a 3x3 depthwise convolution of a small image, one channel after the other. plane is scratch, for a channel's
 * padded image of rows times pitch bytes. weights, scales: as of depthwise layers by rows; limits are those of int8. */
static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *plane, const int8_t *weights,
    const int32_t *scales, int32_t height, int32_t rows, int32_t pitch)
{
    const int32_t channels = geometry[2];
    const int32_t top = geometry[9];
    const int32_t left = geometry[10];
    const int32_t below = rows - top < geometry[0] ? rows - top : geometry[0];
    const int32_t behind = pitch - left < geometry[1] ? pitch - left : geometry[1];
    const int32_t size[5] = {geometry[11], height, pitch, geometry[6], geometry[5] * pitch};
    memset(plane, geometry[12], (size_t)(rows * pitch));
    for (int32_t channel = 0; channel < channels; ++channel) {
        const int8_t *source = image++;
        int8_t *to = plane + top * pitch + left;
        for (int32_t row = 0; row < below; ++row) {
            const int8_t *from = source;
            for (const int8_t *const end = to + behind; to != end; ++to) {
                *to = *from;
                from += channels;
            }
            to += pitch - behind;
            source += geometry[1] * channels;
        }
        depthwise_image_channel(output++, plane, size, weights, scales, channels);
        weights += 9;
        scales += 4;
    }
}
