{% set width = line // 4 %}
/* Computes some pixels of a row of a depthwise convolution whose filter is at most four by four, from column on, in passes
 * of some channels, which are a multiple of {{ width }}. geometry as copy_window has it, then: channels of the output; its
 * zero, low and high; columns that the pixels of a row, rounded up to four, see with a filter of four columns.
 * scratch: four bytes for each of these columns, or of those that pixels see, and each channel of a pass{{ "; 64 more" if width < 16 }}. */
static void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream, int32_t row,
    int32_t column, int32_t pixels, int32_t pass)
{
    const int32_t channels = geometry[2];
    const int32_t seen = (pixels - 1) * geometry[6] + geometry[4];
    const int32_t begin = column * geometry[6] - geometry[10];
    const int32_t left = begin >= 0 ? 0 : -begin < seen ? -begin : seen;
    const int32_t rest = geometry[1] - begin - left;
    const int32_t inside = rest < 0 ? 0 : rest < seen - left ? rest : seen - left;
    const int32_t bytes = inside * channels;
    const int8_t *sources[4];
    int8_t outside[16];
    int32_t steps[4] = {0, 0, 0, 0};
    struct vector_block call = {
        scratch, output, stream, stream, pixels, geometry[13], geometry[14], geometry[15], geometry[16]};
    vector_fill(outside, geometry[12], 16);
    for (int32_t number = 0; number < 4; ++number) {
        const int32_t y = row * geometry[5] - geometry[9] + number * geometry[7];
        sources[number] = outside;
        if (number < geometry[3] && y >= 0 && y < geometry[0] && inside > 0) {
            sources[number] = image + (y * geometry[1] + begin + left) * channels;
            steps[number] = {{ "channels" if width == 16 else 16 }};
        }
    }
    for (int32_t block = 0; block < channels; block += {{ width }}) {
        const int8_t *rows[4];
        int8_t *const to = scratch + block % pass / {{ width }} * {{ line }} * geometry[17];
        const int32_t end = block + {{ width }} < channels ? block + {{ width }} : channels;
        for (int32_t number = 0; number < 4; ++number) {
            rows[number] = sources[number] + (steps[number] > 0 ? block : 0);
        }
        vector_fill(to, geometry[12], {{ line }} * left);
{% if width == 16 %}
        vector_columns(to + 64 * left, rows, steps, inside, end - block);
        (void)bytes;
{% else %}
        vector_columns(to + {{ line }} * left, rows, steps, bytes / 16, 16);
        vector_columns(to + {{ line }} * left + bytes / 16 * 64, rows, steps, bytes % 16 > 0 ? 1 : 0, bytes % 16);
{% endif %}
        vector_fill(to + {{ line }} * (left + inside), geometry[12], {{ line }} * (seen - left - inside));
        if (end % pass == 0 || end == channels) {
            const int32_t outputs = ((end - 1) % pass + 1) * (geometry[13] / channels);
            call.end = call.stream + 8 * outputs;
            if (call.stream != call.end) {
                vector_channels_{{ line }}_{{ next }}_{{ rounded }}_{{ clamped }}(&call);
            }
            call.stream = call.end;
            call.output += outputs;
        }
    }
}
