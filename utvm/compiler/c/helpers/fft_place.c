/* Where the input of place at stands of an FFT over count numbers, a power of 2, with steps of four and at last of two:
 * the digits of the place in reverse order. */
static inline int32_t fft_place(int32_t at, int32_t count)
{
    int32_t source = 0;
    int32_t stride = 1;
    while (count > 1) {
        const int32_t radix = count % 4 == 0 ? 4 : 2;
        count /= radix;
        source += at / count * stride;
        at %= count;
        stride *= radix;
    }
    return source;
}
