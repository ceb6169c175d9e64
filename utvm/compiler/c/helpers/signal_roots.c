/* Square roots of 64 bits, shifted right (signal/src/square_root_64.cc and square_root_32.cc of TFLM). */
static inline void signal_roots(uint32_t *output, const uint64_t *input, const int32_t *shift, int32_t size)
{
    for (int32_t at = 0; at < size; ++at) {
        uint64_t rest = input[at];
        const bool wide = rest >> 32 != 0;
        uint64_t root = 0;
        uint64_t bit = (uint64_t)1 << (wide ? 62 : 30);
        while (bit > rest) {
            bit >>= 2;
        }
        for (; bit != 0; bit >>= 2) {
            if (rest >= root + bit) {
                rest -= root + bit;
                root = (root >> 1) + bit;
            } else {
                root >>= 1;
            }
        }
        if (rest > root && root != (wide ? UINT32_MAX : UINT16_MAX)) {
            ++root;
        }
        output[at] = (uint32_t)root >> (shift[0] & 31);
    }
}
