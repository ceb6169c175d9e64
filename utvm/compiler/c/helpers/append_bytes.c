/* Copies bytes and returns where the next one belongs. */
static inline int8_t *append_bytes(int8_t *to, const int8_t *from, int32_t count)
{
    for (; count >= 4; count -= 4) {
        memcpy(to, from, 4);
        to += 4;
        from += 4;
    }
    for (; count > 0; --count) {
        *to++ = *from++;
    }
    return to;
}
