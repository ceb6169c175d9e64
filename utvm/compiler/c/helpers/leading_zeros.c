/* Returns how many zeros a number begins with, of 32 bits. value is positive. */
static inline int32_t leading_zeros(int32_t value)
{
    int32_t zeros = 0;
    for (uint32_t bits = (uint32_t)value; bits < ((uint32_t)1 << 31); bits <<= 1) {
        ++zeros;
    }
    return zeros;
}
