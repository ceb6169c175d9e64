/* Writes int8 values two in a word, as expand_columns takes each four apart; zeros behind the last ones. */
static inline void expand_values(int32_t *to, const int8_t *values, int32_t count)
{
    for (; count >= 4; count -= 4) {
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
        const uint32_t word = load_word(values);
        __asm__("sxtb16 %0, %1" : "=r"(to[0]) : "r"(word));
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(to[1]) : "r"(word));
#else
        to[0] = (int32_t)((uint16_t)values[0] | (uint32_t)(uint16_t)values[2] << 16);
        to[1] = (int32_t)((uint16_t)values[1] | (uint32_t)(uint16_t)values[3] << 16);
#endif
        to += 2;
        values += 4;
    }
    if (count > 0) {
        to[0] = (uint16_t)values[0];
        to[1] = 0;
        if (count > 1) {
            to[1] = (uint16_t)values[1];
        }
        if (count > 2) {
            to[0] |= (int32_t)((uint32_t)(uint16_t)values[2] << 16);
        }
    }
}
