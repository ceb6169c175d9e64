/* Writes int8 values as one pixel's part of columns, int16 [pairs][4 pixels][2]. Of each four values, the first pair
 * is the first and third, the second pair the second and fourth: the order in which SXTB16 takes bytes apart.
 * Returns where the values after these belong. count is a multiple of four. */
static inline int16_t *expand_columns(int16_t *columns, const int8_t *values, int32_t count)
{
    for (const int8_t *end = values + count; values != end; values += 4) {
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
        const uint32_t word = load_word(values);
        uint32_t even, odd;
        __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(word));
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
        memcpy(columns, &even, sizeof even);
        memcpy(columns + 8, &odd, sizeof odd);
#else
        columns[0] = values[0];
        columns[1] = values[2];
        columns[8] = values[1];
        columns[9] = values[3];
#endif
        columns += 16;
    }
    return columns;
}
