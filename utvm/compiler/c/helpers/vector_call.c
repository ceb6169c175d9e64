/* Returns what a layer's kernel is told of any row. geometry as copy_window has it, then: channels of the output; its
 * zero, low and high; mask; words of the stream; bytes of a run, and how many runs; bytes of a row of the strip. */
static inline struct vector_tiles vector_call(const int32_t *geometry, const int32_t *stream)
{
    const int32_t channels = geometry[13];
    const struct vector_tiles call = {
        NULL, NULL, NULL, stream, stream + geometry[18], 1, 0, 0, 2 * channels, channels,
        geometry[14], geometry[15], geometry[16], geometry[17], geometry[19] * geometry[20]};
    return call;
}
