/* Where the input of place at stands of an FFT over count numbers, with steps of fft_radix: the digits of the place in
 * reverse order. */
static inline int32_t fft_place(int32_t at, int32_t count)
{
    int32_t source = 0;
    int32_t stride = 1;
    while (count > 1) {
        const int32_t radix = count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : count % 3 == 0 ? 3 : 5;
        count /= radix;
        source += at / count * stride;
        at %= count;
        stride *= radix;
    }
    return source;
}
