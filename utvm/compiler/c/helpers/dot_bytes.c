/* The sum of products of two rows of values. No sum may overflow. */
static inline int32_t dot_bytes(const int8_t *values, const int8_t *weights, int32_t count)
{
    int32_t sum = 0;
    for (; count >= 4; count -= 4) {
        sum += values[0] * weights[0];
        sum += values[1] * weights[1];
        sum += values[2] * weights[2];
        sum += values[3] * weights[3];
        values += 4;
        weights += 4;
    }
    for (; count > 0; --count) {
        sum += *values++ * *weights++;
    }
    return sum;
}
