/* One of two channels' biases. form 1: the second word is the first plus 256 times the second bias. */
static inline int32_t {{ name }}(const int32_t *biases, int32_t which, int32_t form)
{
    if (which != 0 && form == 1) {
        return (int32_t)((uint32_t)biases[1] - (uint32_t)biases[0]) / 256;
    }
    return biases[which];
}
