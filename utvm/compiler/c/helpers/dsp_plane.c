/* Computes one channel of a depthwise convolution of three rows and columns: what kernels of the DSP extension compute.
 * across, down: from one pixel to the next in the plane, and from one row of output to the next; pitch: from one row of
 * the plane. channels: of the output. stream: for each row of the filter a word of its first two weights, the first one
 * lowest, and one of its last two; the bias, with the input's zero point, all twice as large as they are; the
 * multiplier, addend and shift of scale_sum. No sum may overflow. */
static inline void dsp_plane(
    int8_t *output, const int16_t *plane, const int32_t *stream, int32_t rows, int32_t across, int32_t down,
    int32_t pitch, int32_t pixels, int32_t channels, int32_t low, int32_t high)
{
    for (int32_t row = 0; row < rows; ++row) {
        for (int32_t pixel = 0; pixel < pixels; ++pixel) {
            int32_t sum = stream[6];
            for (int32_t line = 0; line < 3; ++line) {
                const int16_t *const place = plane + row * down + line * pitch + pixel * across;
                const uint32_t first = (uint32_t)stream[2 * line];
                const uint32_t last = (uint32_t)stream[2 * line + 1];
                sum += place[0] * (int16_t)(first & 0xffffu) + place[1] * (int16_t)(first >> 16);
                sum += place[2] * (int16_t)(last >> 16);
            }
            {
                const int32_t value = scale_sum(sum / 2, stream[7], stream[8], stream[9]);
                *output = (int8_t)(value < low ? low : value > high ? high : value);
            }
            output += channels;
        }
    }
}
