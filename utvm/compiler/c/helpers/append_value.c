/* Writes a value count times and returns where the next byte belongs. */
static inline int8_t *append_value(int8_t *to, int32_t value, int32_t count)
{
    for (; count > 0; --count) {
        *to++ = (int8_t)value;
    }
    return to;
}
