static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream,
    int32_t row)
{
    vector_windows(
        vector_tiles_{{ [unrolled, rounds, pixels, rounded]|join("_") }},
        copy_window{{ "_%d_%d" % (rows, run) if rows else "" }}, output, image, geometry, scratch, stream, row);
}
