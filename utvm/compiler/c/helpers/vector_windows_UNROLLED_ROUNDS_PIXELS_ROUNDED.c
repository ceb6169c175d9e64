static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream,
    int32_t row)
{
    vector_windows({{ name|replace("windows", "tiles") }}, output, image, geometry, scratch, stream, row);
}
