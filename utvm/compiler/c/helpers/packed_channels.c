#if defined(__GNUC__)
/* Neither moved nor put together with others by the compiler, which would need more registers than there are. */
#define PACKED_KEPT(sum) __asm__ volatile("" : "+r"(sum));
#else
#define PACKED_KEPT(sum)
#endif
#if defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__) && defined(__ARM_ARCH_ISA_THUMB) && \
    __ARM_ARCH_ISA_THUMB == 1
/* Most instructions know eight registers only, and the compiler would keep sums in memory: the others hold them here.
 * It leaves those alone where it optimizes for size. */
#define PACKED_LOAD(k, words) "movs r6, #" #k "\n\tldrsb r6, [%[weights], r6]\n\tldmia %[column]!, {" words "}\n\t"
#define PACKED_TWO(k, next) \
    PACKED_LOAD(k, "r4, r5") \
    "muls r4, r6, r4\n\tmuls r5, r6, r5\n\tadd r4, %[half]\n\tadd r5, %[half]\n\t" PACKED_ADD(next)
#define PACKED_ADD(k) \
    PACKED_LOAD(k, "r2, r3") \
    "muls r2, r6, r2\n\tmuls r3, r6, r3\n\tadds r4, r4, r2\n\tadds r5, r5, r3\n\t"
#define PACKED_SUM \
    "add %[even], r4\n\tasrs r4, r4, #16\n\tadd %[odd], r4\n\t" \
    "add %[even_next], r5\n\tasrs r5, r5, #16\n\tadd %[odd_next], r5\n\t"
#define PACKED_FOUR(a, b, c, d) PACKED_TWO(a, b) PACKED_ADD(c) PACKED_ADD(d)
#define PACKED_8_1(a, b, c, d, e, f, g, h) \
    PACKED_TWO(a, b) PACKED_SUM PACKED_TWO(c, d) PACKED_SUM PACKED_TWO(e, f) PACKED_SUM PACKED_TWO(g, h) PACKED_SUM
#define PACKED_8_2(a, b, c, d, e, f, g, h) PACKED_FOUR(a, b, c, d) PACKED_SUM PACKED_FOUR(e, f, g, h) PACKED_SUM
#define PACKED_8_3(a, b, c, d, e, f, g, h) \
    PACKED_FOUR(a, b, c, d) PACKED_ADD(e) PACKED_ADD(f) PACKED_ADD(g) PACKED_ADD(h) PACKED_SUM
#define PACKED_RUN(products) \
    __asm__ volatile(".syntax unified\n\t" products \
                     : [even] "+h"(even), [odd] "+h"(odd), [even_next] "+h"(even_next), [odd_next] "+h"(odd_next), \
                       [column] "+l"(column) \
                     : [weights] "l"(weights), [half] "h"(half) \
                     : "r2", "r3", "r4", "r5", "r6", "cc", "memory");
#define PACKED_ALL(group) \
    for (const int8_t *const end = weights + (length & ~15); weights != end; weights += 16) { \
        PACKED_RUN(PACKED_8_##group(0, 1, 2, 3, 4, 5, 6, 7) PACKED_8_##group(8, 9, 10, 11, 12, 13, 14, 15)) \
    } \
    if (tail) { \
        PACKED_RUN(PACKED_8_##group(0, 1, 2, 3, 4, 5, 6, 7)) \
        weights += 8; \
    }
#elif defined(__GNUC__) && defined(__OPTIMIZE__) && defined(__thumb2__)
/* One load takes up to five words, which the compiler seldom does. Register 5 has the weight. */
#define PACKED_WEIGHT(place) "ldrsb r5, [%[weights]" place "\n\t"
#define PACKED_WORDS(words) "ldmia %[column]!, {" words "}\n\t"
#define PACKED_FIRST(word) "mla r0, " word ", r5, r0\n\t"
#define PACKED_SECOND(word) "mla r1, " word ", r5, r1\n\t"
#define PACKED_TWO(words, a, b) \
    PACKED_WORDS(words) PACKED_WEIGHT(a) "mla r0, r0, r5, %[half]\n\tmla r1, r1, r5, %[half]\n\t" \
    PACKED_WEIGHT(b) PACKED_FIRST("r2") PACKED_SECOND("r3")
#define PACKED_FOUR(a, b, c, d) \
    PACKED_TWO("r0-r4", a, b) PACKED_WEIGHT(c) PACKED_FIRST("r4") PACKED_WORDS("r2-r4") PACKED_SECOND("r2") \
    PACKED_WEIGHT(d) PACKED_FIRST("r3") PACKED_SECOND("r4")
#define PACKED_MORE(a, b, c, d) \
    PACKED_WORDS("r2-r4") PACKED_WEIGHT(a) PACKED_FIRST("r2") PACKED_SECOND("r3") \
    PACKED_WEIGHT(b) PACKED_FIRST("r4") PACKED_WORDS("r2-r4") PACKED_SECOND("r2") \
    PACKED_WEIGHT(c) PACKED_FIRST("r3") PACKED_SECOND("r4") \
    PACKED_WORDS("r2-r3") PACKED_WEIGHT(d) PACKED_FIRST("r2") PACKED_SECOND("r3")
#define PACKED_SUM \
    "add %[even], r0\n\tadd %[odd], %[odd], r0, asr #16\n\t" \
    "add %[even_next], r1\n\tadd %[odd_next], %[odd_next], r1, asr #16\n\t"
#define PACKED_PAIR(a, b) PACKED_TWO("r0-r3", a, b) PACKED_SUM
#define PACKED_8_1(a, b, c, d, e, f, g, h) PACKED_PAIR(a, b) PACKED_PAIR(c, d) PACKED_PAIR(e, f) PACKED_PAIR(g, h)
#define PACKED_8_2(a, b, c, d, e, f, g, h) PACKED_FOUR(a, b, c, d) PACKED_SUM PACKED_FOUR(e, f, g, h) PACKED_SUM
#define PACKED_8_3(a, b, c, d, e, f, g, h) PACKED_FOUR(a, b, c, d) PACKED_MORE(e, f, g, h) PACKED_SUM
#define PACKED_LAST(group, first) \
    PACKED_8_##group(first, ", #-7]", ", #-6]", ", #-5]", ", #-4]", ", #-3]", ", #-2]", ", #-1]")
#define PACKED_RUN(products) \
    __asm__ volatile(products \
                     : [even] "+r"(even), [odd] "+r"(odd), [even_next] "+r"(even_next), [odd_next] "+r"(odd_next), \
                       [column] "+r"(column), [weights] "+r"(weights) \
                     : [half] "r"(half) \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
/* The first load of a weight moves the pointer past all of them. */
#define PACKED_ALL(group) \
    for (int32_t rounds = length >> 4; rounds > 0; --rounds) { \
        PACKED_RUN( \
            PACKED_8_##group("], #16", ", #-15]", ", #-14]", ", #-13]", ", #-12]", ", #-11]", ", #-10]", ", #-9]") \
                PACKED_LAST(group, ", #-8]")) \
    } \
    if (tail) { \
        PACKED_RUN(PACKED_LAST(group, "], #8")) \
    }
#else
#define PACKED_LOAD(k) \
    weight = weights[(k)]; \
    PACKED_KEPT(weight) \
    one = column[2 * (k)]; \
    other = column[2 * (k) + 1]; \
    PACKED_KEPT(one) \
    PACKED_KEPT(other)
#define PACKED_BEGIN(k) \
    PACKED_LOAD((k)) \
    first = half + one * weight; \
    PACKED_KEPT(first) \
    second = half + other * weight; \
    PACKED_KEPT(second)
#define PACKED_ADD(k) \
    PACKED_LOAD((k)) \
    first += one * weight; \
    PACKED_KEPT(first) \
    second += other * weight; \
    PACKED_KEPT(second)
#define PACKED_TWO(k) PACKED_BEGIN((k)) PACKED_ADD((k) + 1)
#define PACKED_MORE(k) PACKED_ADD((k)) PACKED_ADD((k) + 1)
/* The lower halves are right modulo 2^16 and more: what the upper ones took from them is put right at the end. */
#define PACKED_SUM \
    even += (uint32_t)first; \
    PACKED_KEPT(even) \
    odd += first >> 16; \
    PACKED_KEPT(odd) \
    even_next += (uint32_t)second; \
    PACKED_KEPT(even_next) \
    odd_next += second >> 16; \
    PACKED_KEPT(odd_next)
/* Eight products, in sums of two, four and eight. */
#define PACKED_8_1(k) \
    PACKED_TWO((k)) PACKED_SUM PACKED_TWO((k) + 2) PACKED_SUM PACKED_TWO((k) + 4) PACKED_SUM PACKED_TWO((k) + 6) PACKED_SUM
#define PACKED_8_2(k) PACKED_TWO((k)) PACKED_MORE((k) + 2) PACKED_SUM PACKED_TWO((k) + 4) PACKED_MORE((k) + 6) PACKED_SUM
#define PACKED_8_3(k) PACKED_TWO((k)) PACKED_MORE((k) + 2) PACKED_MORE((k) + 4) PACKED_MORE((k) + 6) PACKED_SUM
#define PACKED_ALL(group) \
    int32_t first, second, weight, one, other; \
    for (const int8_t *const end = weights + (length & ~15); weights != end; weights += 16) { \
        PACKED_8_##group(0) \
        PACKED_8_##group(8) \
        column += 32; \
    } \
    if (tail) { \
        PACKED_8_##group(0) \
        weights += 8; \
    }
#endif

/* Computes all channels of up to four pixels. columns: [][2] words, each of two pixels' values: the first, and
 * the second times 2^16, so that a product with a word is two products; 2, 4 or 8 of them are added in 16 bits, as a
 * channel's group says, 1, 2 or 3. weights: [channels][length], from the first word of a channel on; length is a multiple
 * of 8. scales: [channels][4]: bias with the input's zero point, multiplier, offset, and shift with an eighth of the
 * first word's number times 256 and the group times 2^24. zero: of the output. */
static inline void packed_channels(
    int8_t *output, const int32_t *columns, const int8_t *weights, int32_t length, const int32_t *scales,
    int32_t channels, int32_t pixels, int32_t low, int32_t high, int32_t zero)
{
    const bool folded = pixels == 4 && zero == INT8_MIN && low == INT8_MIN && high == INT8_MAX;
    const bool tail = (length & 8) != 0;
    for (const int8_t *last = output + channels; output != last; ++output) {
        const int32_t *column = columns + (scales[3] >> 8 & 0xffff) * 16;
        const int32_t group = scales[3] >> 24;
        int32_t half = 0x8000;
        const int32_t bias = scales[0];
        uint32_t even = (uint32_t)bias * 0x10001u - ((uint32_t)(length >> group) << 15);
        int32_t odd = bias;
        uint32_t even_next = even;
        int32_t odd_next = bias;
        PACKED_KEPT(half)
        if (group == 3) {
            PACKED_ALL(3)
        } else if (group == 2) {
            PACKED_ALL(2)
        } else {
            PACKED_ALL(1)
        }
        even -= (uint32_t)odd << 16;
        even_next -= (uint32_t)odd_next << 16;
        if (folded) {
            const int32_t multiplier = scales[1];
            const int32_t offset = scales[2];
            const int32_t shift = scales[3] & 31;
            int8_t *to = output;
            *to = (int8_t)saturate_int8(scale_folded((int32_t)even, multiplier, offset, shift));
            to += channels;
            *to = (int8_t)saturate_int8(scale_folded(odd, multiplier, offset, shift));
            to += channels;
            *to = (int8_t)saturate_int8(scale_folded((int32_t)even_next, multiplier, offset, shift));
            to += channels;
            *to = (int8_t)saturate_int8(scale_folded(odd_next, multiplier, offset, shift));
        } else {
            const int32_t sums[4] = {(int32_t)even, odd, (int32_t)even_next, odd_next};
            int8_t *to = output;
            for (int32_t pixel = 0; pixel < pixels; ++pixel) {
                const int32_t value = scale_signed(sums[pixel], scales[1], scales[2], scales[3] & 31);
                *to = (int8_t)(value < low ? low : value > high ? high : value);
                to += channels;
            }
        }
        scales += 4;
    }
}
