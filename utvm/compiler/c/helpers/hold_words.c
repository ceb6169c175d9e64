/* Copies words before the first step of a function, whose number is 0. */
static inline void {{ name }}(int32_t *to, const int32_t *from, int32_t count, int32_t step)
{
    if (step == 0) {
        memcpy(to, from, (size_t)count * sizeof *to);
    }
}
