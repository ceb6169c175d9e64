/* Computes a row of a convolution by a kernel of vectors, from a strip of the rows that it sees: scratch has as many of
 * geometry[21] bytes, and 16 more. Not for filters with horizontal dilation. All is read before anything is written. */
static inline void vector_row(
    void (*tiles)(const struct vector_tiles *), int8_t *output, const int8_t *image, const int32_t *geometry,
    int8_t *scratch, const int32_t *stream, int32_t row)
{
    const int32_t pixel = geometry[6] * geometry[2];
    const int32_t last = geometry[11] - 1;
    struct vector_tiles call = vector_call(geometry, stream);
    vector_strip(scratch, image, geometry, row);
    call.step = geometry[21] - geometry[19];
    call.span = geometry[20] * geometry[21];
    call.first = scratch;
    call.second = scratch + pixel;
    call.output = output;
    call.next = 2 * pixel;
    call.pairs = geometry[11] / 2;
    if (call.pairs > 0) {
        tiles(&call);
    }
    if (last % 2 == 0) {
        call.first = scratch + last * pixel;
        call.second = call.first;
        call.output = output + last * geometry[13];
        call.apart = 0;
        call.pairs = 1;
        tiles(&call);
    }
}
