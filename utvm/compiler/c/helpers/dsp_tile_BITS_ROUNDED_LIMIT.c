{# Four pixels of a convolution, weights of 8 or 16 bits; those of 16 bits are stored doubled, so sums are, too. #}
{% import "dsp.j2" as dsp %}
{% set wide = bits == 16 %}
{% macro weights() %}
{% if wide %}
ldrd r2, r3, [r1], #8
{% else %}
ldr r2, [r1], #4
sxtb16 r3, r2, ror #8
sxtb16 r2, r2
{% endif %}
{% endmacro %}
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs,
    int32_t pixels, int32_t pitch)
{
    const uint32_t skipped = (uint32_t)((1 - pairs) & 7) * {{ 44 if wide else 52 }}u;
    const int32_t last = (pixels - 1) * pitch;
    const uintptr_t state[9] = {
        (uintptr_t)columns, skipped, (uintptr_t)(columns + 4 * pairs), (uintptr_t)output,
        (uintptr_t)(pitch < last ? pitch : last), (uintptr_t)(2 * pitch < last ? 2 * pitch : last),
        (uintptr_t)last, (uintptr_t)(output + channels), (uintptr_t)stream};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        {# Stack: columns, bytes skipped in the first round, end of columns, output, three offsets, end of output. #}
        ldm %0, {r0-r8}
        push {r0-r7}
        mov r1, r8
        1:
        ldr r0, [sp]
        ldrd r4, r8, [r1], #8
        {# Sums of two channels start with their biases; pixels in an order that overwrites none. #}
        {{ weights() }}
        ldrd r12, lr, [r0, #8]
        smlad r6, r12, r2, r4
        smlad r10, r12, r3, r8
        smlad r7, lr, r2, r4
        smlad r11, lr, r3, r8
        ldrd r12, lr, [r0], #16
        smlad r5, lr, r2, r4
        smlad r9, lr, r3, r8
        smlad r4, r12, r2, r4
        smlad r8, r12, r3, r8
        ldr r2, [sp, #4]
        add pc, r2
        nop
        2:
        .rept 8
        {{ weights() }}
        ldrd r12, lr, [r0], #8
        smlad r4, r12, r2, r4
        smlad r8, r12, r3, r8
        smlad r5, lr, r2, r5
        smlad r9, lr, r3, r9
        ldrd r12, lr, [r0], #8
        smlad r6, r12, r2, r6
        smlad r10, r12, r3, r10
        smlad r7, lr, r2, r7
        smlad r11, lr, r3, r11
        .endr
        ldr r2, [sp, #8]
        cmp r0, r2
        bne 2b
        {% for sum in range(4, 12) %}
        {{ "ldm r1!, {r2, r3, r12}" if sum % 4 == 0 }}
        {{ "lsl r%d, r%d, #1" % (sum, sum) if not wide }}
        {{ dsp.scale("r%d" % sum, "r2", "r3", rounded, limit) }}
        {% endfor %}
        add lr, sp, #12
        ldm lr, {r0, r2, r3, r12}
        strb r7, [r0, r12]
        strb r6, [r0, r3]
        strb r5, [r0, r2]
        strb r4, [r0], #1
        strb r11, [r0, r12]
        strb r10, [r0, r3]
        strb r9, [r0, r2]
        strb r8, [r0], #1
        str r0, [lr]
        ldr r2, [lr, #16]
        cmp r0, r2
        bne 1b
        add sp, #32
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs,
    int32_t pixels, int32_t pitch)
{
    dsp_tile(output, columns, stream, channels, pairs, pixels, pitch, {{ wide|int }}, {{ dsp.limits(limit) }});
}
#endif
