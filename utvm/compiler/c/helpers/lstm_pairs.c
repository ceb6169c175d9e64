{% macro four_values() %}
ldrd %[even], %[odd], [%[values]], #8
{% for sums in ("first", "third") %}
ldrd %[word], %[next], [%[stream]], #8
sxtb16 %[alone], %[word]
smlad %[{{ sums }}], %[even], %[alone], %[{{ sums }}]
smlad %[{{ sums }}_two], %[even], %[word], %[{{ sums }}_two]
sxtb16 %[alone], %[next]
smlad %[{{ sums }}], %[odd], %[alone], %[{{ sums }}]
smlad %[{{ sums }}_two], %[odd], %[next], %[{{ sums }}_two]
{% endfor %}
{% endmacro %}
/* As lstm_sums, for the DSP extension. values: two in a word, as expand_values writes them. stream: of a unit its biases
 * and words of weights, each as a gate's number, then the same plus 256 times the next gate's; of words the second
 * halves, for the two values of a word. Of a unit: first and second gate's two biases, third and fourth one's; for four
 * values two words of the first two gates and two of the others. 257 times a sum must fit 32 bits. */
static inline void {{ name }}(int32_t *sums, const int32_t *values, const int32_t *stream, int32_t count, int32_t units)
{
    const int32_t fours = (count + 3) / 4;
    for (; units > 0; --units) {
        int32_t first, first_two, third, third_two;
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
        const int32_t *at = values;
        int32_t even, odd, word, next, alone;
        int32_t twice = fours;
        __asm__(
{% filter instructions %}
            ldrd %[first], %[first_two], [%[stream]], #8
            ldrd %[third], %[third_two], [%[stream]], #8
            lsrs %[twice], %[twice], #1
            bcc 1f
            {{ four_values() }}
            cmp %[twice], #0
            beq 2f
            1:
            {{ four_values() }}
            {{ four_values() }}
            subs %[twice], #1
            bne 1b
            2:
{% endfilter %}
            : [first] "=&r"(first), [first_two] "=&r"(first_two), [third] "=&r"(third), [third_two] "=&r"(third_two),
              [values] "+&r"(at), [stream] "+&r"(stream), [even] "=&r"(even), [odd] "=&r"(odd), [word] "=&r"(word),
              [next] "=&r"(next), [alone] "=&r"(alone), [twice] "+&r"(twice)
            :
            : "cc", "memory");
#else
        first = stream[0];
        first_two = stream[1];
        third = stream[2];
        third_two = stream[3];
        stream += 4;
        for (int32_t pair = 0; pair < 2 * fours; ++pair) {
            const int32_t *const words = stream + pair / 2 * 4 + pair % 2;
            for (int32_t half = 0; half < 32; half += 16) {
                const int32_t value = (int16_t)((uint32_t)values[pair] >> half & 0xffffu);
                const int32_t word = (int16_t)((uint32_t)words[0] >> half & 0xffffu);
                const int32_t next = (int16_t)((uint32_t)words[2] >> half & 0xffffu);
                first += value * (int8_t)(word & 0xff);
                first_two += value * word;
                third += value * (int8_t)(next & 0xff);
                third_two += value * next;
            }
        }
        stream += 4 * fours;
#endif
        sums[0] = first;
        sums[8] = (first_two - first) >> 8;
        sums[16] = third;
        sums[24] = (third_two - third) >> 8;
        ++sums;
    }
}
