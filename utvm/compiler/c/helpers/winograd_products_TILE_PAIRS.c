{# Sums of products at each position, of two tiles and four output channels: 11 instructions for eight SMLAD. #}
{% set positions = (tile + 2) * (tile + 2) %}
{% set unrolled = pairs if pairs <= 16 else 16 %}
/* values: [positions][pairs of channels][2 tiles]. weights: for each position the initial values of four sums, then
 * [pairs][4 channels]. sums: [positions][2 tiles][4 channels], modulo 2^32. */
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(int32_t *sums, const int32_t *values, const int32_t *weights)
{
    const uintptr_t state[4] = {
        (uintptr_t)values, (uintptr_t)weights, (uintptr_t)sums, (uintptr_t)(sums + {{ 8 * positions }})};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        ldm %0, {r0-r3}
        {# Stack: place of the sums, their end, end of a position's values. #}
        push {r1-r3}
        1:
        {% if unrolled < pairs %}
        add r2, r0, #{{ 8 * pairs }}
        str r2, [sp]
        {% endif %}
        ldm r1!, {r4-r7}
        mov r8, r4
        mov r9, r5
        mov r10, r6
        mov r11, r7
        2:
        .rept {{ unrolled }}
        ldrd r2, r3, [r0], #8
        ldrd r12, lr, [r1], #8
        smlad r8, r12, r3, r8
        smlad r4, r12, r2, r4
        smlad r9, lr, r3, r9
        smlad r5, lr, r2, r5
        ldrd r12, lr, [r1], #8
        smlad r10, r12, r3, r10
        smlad r6, r12, r2, r6
        smlad r11, lr, r3, r11
        smlad r7, lr, r2, r7
        .endr
        {% if unrolled < pairs %}
        ldr r2, [sp]
        cmp r0, r2
        bne 2b
        {% endif %}
        ldrd r2, r3, [sp, #4]
        stm r2!, {r4-r11}
        str r2, [sp, #4]
        cmp r2, r3
        bne 1b
        add sp, #12
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(int32_t *sums, const int32_t *values, const int32_t *weights)
{
    for (int32_t position = 0; position < {{ positions }}; ++position) {
        for (int32_t number = 0; number < 8; ++number) {
            const int32_t tile = number / 4;
            uint32_t sum = (uint32_t)weights[number % 4];
            for (int32_t pair = 0; pair < {{ pairs }}; ++pair) {
                const uint32_t value = (uint32_t)values[2 * pair + tile];
                const uint32_t both = (uint32_t)weights[4 + 4 * pair + number % 4];
                sum += (uint32_t)((int32_t)(value & 0xffffu) * (int16_t)(both & 0xffffu));
                sum += (uint32_t)((int32_t)(value >> 16) * (int16_t)(both >> 16));
            }
            *sums++ = (int32_t)sum;
        }
        values += {{ 2 * pairs }};
        weights += {{ 4 + 4 * pairs }};
    }
}
#endif
