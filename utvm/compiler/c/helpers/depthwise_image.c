/* Computes a 3x3 depthwise convolution of a small image, one channel after the other. plane is scratch, for a channel's
 * padded image of rows times pitch bytes. weights, scales: as of depthwise layers by rows; limits are those of int8. */
static __attribute__((noinline)) void {{ name }}(
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
        for (int32_t lines = below; lines > 0; lines -= 3) {
            copy_rows(to, source, pitch, channels, geometry[1] * channels, behind, lines);
            source += 3 * geometry[1] * channels;
            to += 3 * pitch;
        }
        depthwise_nine(output++, plane, size, weights, scales, channels);
        weights += 9;
        scales += 4;
    }
}
