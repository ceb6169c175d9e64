/* Returns a * b / 2^31, to the nearest, halves up. a and b are not both -2^31. */
static inline int32_t multiply_high(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}
