/* Copies rows of a window to its beginning, which is before them. */
static inline void move_rows(int8_t *to, const int8_t *from, int32_t bytes)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    vector_copy(to, from, bytes);
#else
    memmove(to, from, (size_t)bytes);
#endif
}
