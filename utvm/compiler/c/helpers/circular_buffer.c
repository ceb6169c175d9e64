/* Shifts a buffer of slots and appends the input (tensorflow/lite/micro/kernels/circular_buffer.cc). */
static inline void circular_buffer(
    int8_t *output, int8_t *after, const int8_t *input, const int8_t *before, int32_t size, int32_t depth)
{
    for (int32_t at = 0; at < size; ++at) {
        output[at] = at < size - depth ? before[at + depth] : input[at - (size - depth)];
        after[at] = output[at];
    }
}
