/* As depthwise_single, three pixels at a time if that pays. */
static inline void depthwise_nine(
    int8_t *output, const int8_t *plane, const int32_t *size, const int8_t *weights, const int32_t *scales,
    int32_t channels)
{
#if defined(DEPTHWISE_THREES)
    if (size[0] >= 3 && size[3] == 1) {
        depthwise_nine_1(output, plane, size, weights, scales, channels);
        return;
    }
    if (size[0] >= 3 && size[3] == 2) {
        depthwise_nine_2(output, plane, size, weights, scales, channels);
        return;
    }
#endif
    depthwise_single(output, plane, size, weights, scales, channels);
}
