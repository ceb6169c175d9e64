/* Computes a row of any convolution by a kernel of vectors, from copies of two windows: scratch has room for them, each
 * a multiple of 16 bytes. */
static inline void vector_windows(
    void (*tiles)(const struct vector_tiles *),
    void (*copy)(int8_t *, const int8_t *, const int32_t *, int32_t, int32_t), int8_t *output, const int8_t *image,
    const int32_t *geometry, int8_t *scratch, const int32_t *stream, int32_t row)
{
    struct vector_tiles call = vector_call(geometry, stream);
    call.first = scratch;
    call.second = scratch + geometry[19] * geometry[20];
    for (int32_t pixel = 0; pixel < geometry[11]; pixel += 2) {
        call.output = output + pixel * geometry[13];
        copy(scratch, image, geometry, row, pixel);
        if (pixel + 1 < geometry[11]) {
            copy(scratch + geometry[19] * geometry[20], image, geometry, row, pixel + 1);
        } else {
            call.second = call.first;
            call.apart = 0;
        }
        tiles(&call);
    }
}
