{% set shift = 10 if bits == 9 else 8 %}
{% set added = 2**9 if bits == 9 else 2**7 - 2**23 %}
/* {{ "LOGISTIC" if bits == 9 else "TANH" }} of a number with 27 fractional bits, with 15, as TensorFlow Lite Micro has it; tanh(x) = 2 logistic(2 x) - 1.
 * table: the middle of 513 entries, one every 2^{{ bits }} steps.{{ " The number lies within 3 * 2^15." if bits == 9 }} */
static inline int32_t {{ name }}(int32_t value, const uint16_t *table)
{
    {% if bits == 9 %}
    const int32_t place = value >> {{ bits }};
    {% elif bits == 8 %}
#if defined(__ARM_FEATURE_SAT)
    int32_t place;
    __asm__("ssat %0, #9, %1, asr #8" : "=r"(place) : "r"(value));
#else
    const int32_t entry = value >> 8;
    const int32_t place = entry < -256 ? -256 : entry > 255 ? 255 : entry;
#endif
    {% endif %}
    {
        const int32_t low = table[place];
        const int32_t rounded = (low << {{ bits }}) + ({{ added }} + (value >> 31));
        return (rounded + (value & {{ 2**bits - 1 }}) * (table[place + 1] - low)) >> {{ shift }};
    }
}
