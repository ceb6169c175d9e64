/* Radix of the innermost step of an FFT over count numbers, a product of 2, 3 and 5: kissfft takes factors of 4 first,
 * then 2, 3 and 5. powers is whether the count is a power of 2. */
static inline int32_t fft_radix(int32_t count, int32_t powers)
{
    if (powers == 0 && count % 5 == 0) {
        return 5;
    }
    if (powers == 0 && count % 3 == 0) {
        return 3;
    }
    return (count & 0x55555555) == 0 ? 2 : 4;
}
