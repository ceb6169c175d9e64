/* Writes count values of two pixels as every second word from columns: the first, and the
 * second times 2^16. Returns the word behind. */
static inline int32_t *pack_pixels(int32_t *columns, const int8_t *first, const int8_t *second, int32_t count)
{
    for (; count >= 4; count -= 4) {
        columns[0] = first[0] + second[0] * 65536;
        columns[2] = first[1] + second[1] * 65536;
        columns[4] = first[2] + second[2] * 65536;
        columns[6] = first[3] + second[3] * 65536;
        first += 4;
        second += 4;
        columns += 8;
    }
    for (; count > 0; --count) {
        columns[0] = *first++ + *second++ * 65536;
        columns += 2;
    }
    return columns;
}
