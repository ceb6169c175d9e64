/* Parts of a depthwise convolution that the pixels of a block have in common.
 *
 * rows and columns: of the filter, as far as all its pixels read it. line, step and next: bytes to the next row and
 * column that a pixel reads, and to the next pixel. channels: of the image. width: bytes of a row of the filter. limits:
 * the output's zero point, its lowest and highest value, the input's zero point. */
struct vector_lanes {
    const int32_t *limits;
    int32_t rows, columns, line, step, next, channels, width;
};
