{# Four channels of one pixel. #}
{% import "dsp.j2" as dsp %}
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count)
{
    const uint32_t skipped = (uint32_t)(-(count / 4) & 3) * 76u;
    const uintptr_t state[6] = {
        (uintptr_t)values, skipped, (uintptr_t)(stream + groups * (count + 16)), (uintptr_t)output,
        (uintptr_t)stream, (uintptr_t)(values + count / 2)};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        {# Stack: values, bytes skipped in the first round, end of stream, output; r11: end of values. #}
        ldm %0, {r0-r3, r8, r11}
        push {r0-r3}
        mov r1, r8
        1:
        ldm r1!, {r4-r7}
        ldrd r0, r2, [sp]
        add pc, r2
        nop
        2:
        .rept 4
        ldrd r2, r3, [r0], #8
        {% for first, second in (("r4", "r5"), ("r6", "r7")) %}
        ldrd r8, r9, [r1], #8
        sxtb16 r10, r8
        sxtb16 r8, r8, ror #8
        smlad {{ first }}, r2, r10, {{ first }}
        smlad {{ second }}, r2, r8, {{ second }}
        sxtb16 r10, r9
        sxtb16 r9, r9, ror #8
        smlad {{ first }}, r3, r10, {{ first }}
        smlad {{ second }}, r3, r9, {{ second }}
        {% endfor %}
        .endr
        cmp r0, r11
        bne 2b
        {% for sum in ("r4", "r5", "r6", "r7") %}
        ldm r1!, {r2, r3, r12}
        lsl {{ sum }}, {{ sum }}, #1
        {{ dsp.scale(sum, "r2", "r3", rounded, limit) }}
        {% endfor %}
        ldrd r2, r0, [sp, #8]
        strb r4, [r0], #1
        strb r5, [r0], #1
        strb r6, [r0], #1
        strb r7, [r0], #1
        str r0, [sp, #12]
        cmp r1, r2
        bne 1b
        add sp, #16
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(
    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count)
{
    dsp_dense(output, values, stream, groups, count, {{ dsp.limits(limit) }});
}
#endif
