/* Sums of products for a block of up to eight units, [gates][8]. weights: four rows a unit, as gate_sums has them.
 * biases: [units][4]. No sum may overflow. */
static inline void {{ name }}(
    int32_t *sums, const int8_t *values, const int8_t *weights, const int32_t *biases, int32_t count, int32_t units)
{
    const int32_t stride = (count + 3) & ~3;
    for (; units > 0; --units) {
        int32_t four[4];
        gate_sums(four, values, weights, stride, count);
        for (int32_t gate = 0; gate < 4; ++gate) {
            sums[8 * gate] = four[gate] + biases[gate];
        }
        ++sums;
        weights += 4 * stride;
        biases += 4;
    }
}
