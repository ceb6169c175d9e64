/* Limits bytes. */
static inline void clamp_bytes(int8_t *bytes, int32_t count, int32_t low, int32_t high)
{
    for (const int8_t *end = bytes + count; bytes != end; ++bytes) {
        *bytes = (int8_t)(*bytes < low ? low : *bytes > high ? high : *bytes);
    }
}
