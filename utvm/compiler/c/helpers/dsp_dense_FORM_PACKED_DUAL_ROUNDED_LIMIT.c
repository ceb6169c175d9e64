{# Four channels of one pixel. FORM, 0 or 1, PACKED and DUAL are as of dsp_tile; not both of the last. #}
{% import "dsp.j2" as dsp %}
{% set shared = form == 1 %}
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count{{ ", int32_t unit" if packed }})
{
    const uint32_t skipped = (uint32_t)(-(count / 4) & 3) * {{ 88 - 4 * dual - 16 * form }}u;
    const uintptr_t state[{{ 11 if packed else 6 }}] = {
        (uintptr_t)values, skipped, (uintptr_t)(stream + groups * (count + {{ 8 if packed else 16 }})), (uintptr_t)output,
        {{ "0u, 0u, 0u, 0u, (uintptr_t)unit, " if packed }}(uintptr_t)stream, (uintptr_t)(values + count / 2)};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        {# Stack: values, bytes skipped in the first round, end of stream, output; if packed, also biases with shifts, unit. lr:
           end of values. #}
        ldm %0, {{ "{r0-r9, lr}" if packed else "{r0-r3, r8, lr}" }}
        push {{ "{r0-r8}" if packed else "{r0-r3}" }}
        mov r1, {{ "r9" if packed else "r8" }}
        1:
        {# Of two instructions in a cycle, one is a load ahead: of the scales, too, at the end. #}
        ldm r1!, {{ "{r4-r9}" if dual else "{r4-r7}" }}
        {% if packed %}
        add r2, sp, #16
        stm r2, {r4-r7}
        {{ dsp.packed_biases("r4", "r5", shared) }}
        {{ dsp.packed_biases("r6", "r7", shared) }}
        {% endif %}
        ldrd r0, r2, [sp]
        add pc, r2
        nop
        2:
        .rept 4
        {% if dual %}
        ldrd r2, r3, [r0], #8
        {% else %}
        ldr.w r3, [r0, #4]
        ldr r2, [r0], #8
        ldr r9, [r1, #4]
        ldr r10, [r1, #8]
        ldr r11, [r1, #12]
        ldr r8, [r1], #16
        {% endif %}
        {% for even, odd, words, ahead in (("r4", "r5", (8, 9), 2), ("r6", "r7", (10, 11), -2)) %}
        {% for word in words %}
        {% set value = ("r2", "r3")[loop.index0] %}
        sxtb16 r12, r{{ word }}
        {{ "sxtb16 r%d, r%d, ror #8" % (word, word) if not shared }}
        smlad {{ odd }}, {{ value }}, r{{ word }}, {{ odd }}
        smlad {{ even }}, {{ value }}, r12, {{ even }}
        {{ "ldr r%d, [r1], #4" % (word + ahead) if dual }}
        {% endfor %}
        {% endfor %}
        .endr
        cmp r0, lr
        bne 2b
        {{ "sub r5, r5, r4" if shared }}
        {{ "sub r7, r7, r6" if shared }}
        {% for sum in ("r4", "r5", "r6", "r7") %}
        {% if packed %}
        {{ dsp.packed_scale(16 + 4 * loop.index0, 32) }}
        {% elif dual and loop.first %}
        mov r2, r8
        mov r3, r9
        ldr r12, [r1], #4
        {% else %}
        ldm r1!, {r2, r3, r12}
        {% endif %}
        {{ "asr %s, %s, #7" % (sum, sum) if shared and loop.index0 % 2 else "lsl %s, %s, #1" % (sum, sum) }}
        {{ dsp.scale(sum, "r2", "r3", rounded, limit, free="r3") }}
        {% endfor %}
        ldrd r2, r0, [sp, #8]
        strb r4, [r0], #1
        strb r5, [r0], #1
        strb r6, [r0], #1
        strb r7, [r0], #1
        str r0, [sp, #12]
        cmp r1, r2
        bne 1b
        add sp, #{{ 36 if packed else 16 }}
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(
    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count{{ ", int32_t unit" if packed }})
{
    dsp_dense(output, values, stream, groups, count, {{ form }}, {{ "unit" if packed else "0" }}, {{ dsp.limits(limit) }});
}
#endif
