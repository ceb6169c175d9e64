/* How many bits a number has; 32 for zero, as in signal/src/msb_32.cc of TensorFlow Lite Micro. */
static inline int32_t signal_bits(uint32_t value)
{
    int32_t bits = value == 0 ? 32 : 0;
    for (; value != 0; value >>= 1) {
        ++bits;
    }
    return bits;
}
