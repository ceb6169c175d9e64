/* Scaled natural logarithms (signal/src/filter_bank_log.cc and log.cc of TFLM); the table holds
 * log2(1 + i / 128) - i / 128 in 16 fractional bits. */
static inline void signal_log(
    int16_t *output, const uint32_t *input, const int32_t *table, int32_t size, int32_t shift, uint32_t scale)
{
    for (int32_t at = 0; at < size; ++at) {
        const uint32_t value = input[at] << shift;
        uint32_t result = 0;
        if (value > 1) {
            const int32_t whole = signal_bits(value) - 1;
            const uint32_t rest = value - ((uint32_t)1 << whole);
            const int32_t part = (int32_t)(whole < 16 ? rest << (16 - whole) : rest >> (whole - 16));
            const int32_t *row = table + (part >> 9);
            const int32_t between = ((row[1] - row[0]) * (part & 511)) >> 16;
            const uint32_t binary = ((uint32_t)whole << 16) + (uint32_t)(part + row[0] + between);
            const uint32_t natural = (uint32_t)(((uint64_t)45426 * binary + 32768) >> 16);
            result = (scale * natural + 32768) >> 16;
        }
        output[at] = (int16_t)(result < INT16_MAX ? result : INT16_MAX);
    }
}
