/* Copies bytes that lie apart to where they lie otherwise. */
static inline void spread_bytes(int8_t *to, int32_t to_step, const int8_t *from, int32_t from_step, int32_t count)
{
    for (; count > 0; --count) {
        *to = *from;
        to += to_step;
        from += from_step;
    }
}
