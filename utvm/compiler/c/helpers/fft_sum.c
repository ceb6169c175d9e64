/* a + sign * b, which wraps around at one bit more than bits. */
static inline int32_t fft_sum(int32_t a, int32_t sign, int32_t b, int32_t bits)
{
    const uint32_t sum = sign < 0 ? (uint32_t)a - (uint32_t)b : (uint32_t)a + (uint32_t)b;
    return (int32_t)(sum << (31 - bits)) >> (31 - bits);
}
