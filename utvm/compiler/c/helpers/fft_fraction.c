/* Divides by 2 to the power of bits, rounded half up, and wraps around at one bit more. */
static inline int32_t fft_fraction(int64_t value, int32_t bits)
{
    const int32_t result = (int32_t)((value + ((int64_t)1 << (bits - 1))) >> bits);
    return (int32_t)((uint32_t)result << (31 - bits)) >> (31 - bits);
}
