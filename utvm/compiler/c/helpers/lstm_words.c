/* As lstm_sums, for cores without vectors and the DSP extension. values: as expand_pairs writes them. words: of each unit
 * those of dense_sums, for count values, padded to a multiple of four. */
static inline void {{ name }}(
    int32_t *sums, const int32_t *values, const int32_t *words, const int32_t *biases, int32_t count, int32_t units)
{
    const int32_t padded = (count + 3) / 4 * 4;
    const uint32_t added = (uint32_t)padded << 14;
    for (; units > 0; --units) {
        uint32_t four[4];
        dense_sums(four, values, values + 2 * padded, words);
        sums[0] = biases[0] + (int32_t)(four[0] - (four[2] << 16) - added);
        sums[8] = biases[1] + (int32_t)(four[1] - (four[3] << 16) - added);
        sums[16] = biases[2] + (int32_t)four[2];
        sums[24] = biases[3] + (int32_t)four[3];
        ++sums;
        words += padded;
        biases += 4;
    }
}
