/* Computes a row of a convolution whose windows are pixels, by a kernel of vectors. A kernel reads whole vectors: where
 * that were behind the image, a pixel is copied to scratch, which has as many bytes. */
static inline void vector_pixels(
    void (*tiles)(const struct vector_tiles *), int8_t *output, const int8_t *image, const int32_t *geometry,
    int8_t *scratch, const int32_t *stream, int32_t row)
{
    const int32_t channels = geometry[2];
    const int32_t next = geometry[6] * channels;
    const int32_t line = geometry[1] * channels;
    const int32_t begin = row * geometry[5];
    const int8_t *const source = image + begin * line;
    const int32_t room = (geometry[0] - begin) * line - geometry[19] * geometry[20];
    int32_t direct = room < 0 || next == 0 ? 0 : room / next + 1;
    struct vector_tiles call = vector_call(geometry, stream);
    direct = direct < geometry[11] ? direct : geometry[11];
    call.first = source;
    call.second = source + next;
    call.output = output;
    call.next = 2 * next;
    call.pairs = direct / 2;
    if (call.pairs > 0) {
        tiles(&call);
    }
    for (int32_t pixel = direct / 2 * 2; pixel < geometry[11]; ++pixel) {
        call.first = source + pixel * next;
        if (pixel >= direct) {
            vector_copy(scratch, call.first, channels);
            call.first = scratch;
        }
        call.second = call.first;
        call.output = output + pixel * geometry[13];
        call.apart = 0;
        call.pairs = 1;
        tiles(&call);
    }
}
