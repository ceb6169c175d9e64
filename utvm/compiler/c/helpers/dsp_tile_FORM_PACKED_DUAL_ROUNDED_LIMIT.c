{# Four pixels of a convolution. FORM: 0, a byte is a weight; 1, a halfword is the weights of two channels; 2, a halfword is
   a weight, doubled; see dsp_tile. PACKED: biases are packed with shifts. DUAL: the core issues two instructions in a cycle. If not, single loads that follow one
   another are faster than LDRD. AHEAD: the next word of weights is loaded before the last products of this one. #}
{% import "dsp.j2" as dsp %}
{% set shared, wide = form == 1, form == 2 %}
{% set ahead = dual and not wide %}
{# Two values of four pixels and two channels. Begin: sums start with r4 and r8, which the first pixel overwrites. #}
{% macro products(begin) %}
{{ "ldrd r3, r2, [r1], #8" if wide else "ldr r2, [r1], #4" if not ahead }}
{% for first, at in ((6, 8), (4, 0)) %}
{% if dual %}
ldrd r12, lr, [r0{{ ", #8]" if at else "], #16" }}
{% elif at %}
ldr r12, [r0, #4]
ldr lr, [r0, #8]
{% else %}
ldr r12, [r0, #-4]
ldr lr, [r0], #16
{% endif %}
{% if at %}
{{ "sxtb16 r3, r2" if not wide }}
{{ "sxtb16 r2, r2, ror #8" if form == 0 }}
{% endif %}
{% for start, weights in ((8, "r2"), (4, "r3")) %}
{% for pixel in ((1, 0) if begin else (0, 1)) %}
{% set sum = first - 4 + pixel + start %}
smlad r{{ sum }}, {{ ("r12", "lr")[pixel] }}, {{ weights }}, r{{ start if begin else sum }}
{% endfor %}
{{ "ldr r2, [r1], #4" if ahead and not at and start == 8 }}
{% endfor %}
{% endfor %}
{% endmacro %}
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs,
    int32_t pixels, int32_t pitch{{ ", int32_t unit" if packed }})
{
    const uint32_t skipped = (uint32_t)((1 - pairs) & 7) * {{ (60, 56, 52)[form] - 8 * dual }}u;
    const int32_t last = (pixels - 1) * pitch;
    const uintptr_t state[{{ 11 if packed else 9 }}] = {
        (uintptr_t)columns + {{ 4 - 4 * dual }}u, skipped, (uintptr_t)(columns + 4 * pairs) + {{ 4 - 4 * dual }}u,
        (uintptr_t)output,
        (uintptr_t)(pitch < last ? pitch : last), (uintptr_t)(2 * pitch < last ? 2 * pitch : last),
        (uintptr_t)last, (uintptr_t)(output + channels), (uintptr_t)stream{{ ", 0u, (uintptr_t)unit" if packed }}};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        {# Stack: columns, bytes skipped in the first round, end of columns, output, three offsets, end of output; if packed,
           also biases with shifts, unit. #}
        ldm %0, {r0-{{ "r10" if packed else "r8" }}}
        push {r0-{{ "r10" if packed else "r7" }}}
        mov r1, r8
        1:
        ldr r0, [sp]
        ldrd r4, r8, [r1], #8
        {% if packed %}
        strd r4, r8, [sp, #32]
        {{ dsp.packed_biases("r4", "r8", shared) }}
        {% endif %}
        {{ "ldr r2, [r1], #4" if ahead }}
        {{ products(true) }}
        ldr r3, [sp, #4]
        add pc, r3
        nop
        2:
        .rept 8
        {{ products(false) }}
        .endr
        ldr r3, [sp, #8]
        cmp r0, r3
        bne 2b
        {% for sum in range(8, 12 if shared else 8) %}
        sub r{{ sum }}, r{{ sum }}, r{{ sum - 4 }}
        {% endfor %}
        {% for sum in range(4, 12) %}
        {% if sum % 4 == 0 and packed %}
        {{ dsp.packed_scale(28 + sum, 40, ahead and sum == 4) }}
        {% elif ahead and sum == 4 %}
        ldrd r3, r12, [r1], #8
        {% elif sum % 4 == 0 %}
        ldm r1!, {r2, r3, r12}
        {% endif %}
        {{ ("asr r%d, r%d, #7" if shared and sum > 7 else "lsl r%d, r%d, #1") % (sum, sum) if not wide }}
        {{ dsp.scale("r%d" % sum, "r2", "r3", rounded, limit, free="lr") }}
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
        add sp, #{{ 44 if packed else 32 }}
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(
    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs,
    int32_t pixels, int32_t pitch{{ ", int32_t unit" if packed }})
{
    dsp_tile(output, columns, stream, channels, pairs, pixels, pitch, {{ form }}, {{ "unit" if packed else "0" }}, {{ dsp.limits(limit) }});
}
#endif
