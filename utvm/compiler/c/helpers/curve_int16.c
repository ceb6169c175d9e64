/* LOGISTIC (bits is 9) or TANH (8) of a number with 27 fractional bits, with 15, as TensorFlow Lite Micro has them: from
 * a table of 256 entries, one every 2^bits steps; tanh(x) = 2 logistic(2 x) - 1. */
static inline int32_t curve_int16(int32_t value, const int32_t *table, int32_t bits)
{
    const int32_t sign = value < 0 ? -1 : 0;
    const int32_t size = (value ^ sign) - sign;
    const int32_t first = size >> bits;
    int32_t curve = bits == 9 ? INT16_MAX << 10 : UINT16_MAX << 8;
    if (first < 255) {
        const int32_t low = table[first];
        curve = (int32_t)((uint32_t)low << bits) + (size & ((1 << bits) - 1)) * (table[first + 1] - low);
    }
    curve = (curve ^ sign) - sign;
    if (bits == 9) {
        return (curve + (1 << 9) + (sign & ((1 << 25) - 1))) >> 10;
    }
    return (curve - (1 << 23) + (1 << 7) + (sign & ((1 << 24) - 1))) >> 8;
}
