/* What vector_channels computes: some pixels of a row of a depthwise convolution, one channel after the other. All fields
 * are words, which the assembly reads by their places.
 * strip: [column][channel][4 rows] from what the first pixel sees; stream, end: for each channel of the output its weights
 * [4 columns][4 rows], bias, multiplier, shift (negative), and how many bytes the next channel's column lies behind
 * this one's. pixels: of the output; apart: bytes from one to the next. */
struct vector_block {
    const int8_t *strip;
    int8_t *output;
    const int32_t *stream;
    const int32_t *end;
    int32_t pixels;
    int32_t apart;
    int32_t zero;
    int32_t low;
    int32_t high;
};
