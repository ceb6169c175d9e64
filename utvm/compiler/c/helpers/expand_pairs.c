/* Writes four words for each two values: the first; what two sums of a dense layer begin with, to take off the 128 that
 * are added to weights; and the second. Zeros follow the last, up to a multiple of four. */
static inline const int32_t *expand_pairs(int32_t *to, const int8_t *values, int32_t count)
{
    for (int32_t at = 0; at < count || at % 4 != 0; at += 2) {
        const int32_t first = at < count ? values[at] : 0;
        const int32_t second = at + 1 < count ? values[at + 1] : 0;
        const uint32_t begin = 0x8000u - (uint32_t)(first + second) * 0x800080u;
        to[0] = first;
        to[1] = (int32_t)(begin + (begin << 8));
        to[2] = (int32_t)begin;
        to[3] = second;
        to += 4;
    }
    return to;
}
