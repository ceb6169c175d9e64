#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
#define EXPAND_FOUR(at) \
    { \
        const uint32_t word = load_word(values + 4 * (at)); \
        __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(word)); \
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word)); \
        columns[8 * (at)] = even; \
        columns[8 * (at) + 4] = odd; \
    }
#else
#define EXPAND_FOUR(at) \
    even = (int32_t)((uint16_t)values[4 * (at)] | (uint32_t)(uint16_t)values[4 * (at) + 2] << 16); \
    odd = (int32_t)((uint16_t)values[4 * (at) + 1] | (uint32_t)(uint16_t)values[4 * (at) + 3] << 16); \
    columns[8 * (at)] = even; \
    columns[8 * (at) + 4] = odd;
#endif

/* Writes int8 values as one pixel's part of columns, [pairs][4 pixels], two values in a word. Of each four values, the
 * first pair is the first and third, the second pair the second and fourth: the order in which SXTB16 takes bytes apart.
 * Returns where the values after these belong. count is a multiple of four. */
static inline int32_t *expand_columns(int32_t *columns, const int8_t *values, int32_t count)
{
    int32_t even;
    int32_t odd;
    for (const int8_t *end = values + (count & ~15); values != end; values += 16) {
        EXPAND_FOUR(0)
        EXPAND_FOUR(1)
        EXPAND_FOUR(2)
        EXPAND_FOUR(3)
        columns += 32;
    }
    for (const int8_t *end = values + (count & 15); values != end; values += 4) {
        EXPAND_FOUR(0)
        columns += 8;
    }
    return columns;
}
