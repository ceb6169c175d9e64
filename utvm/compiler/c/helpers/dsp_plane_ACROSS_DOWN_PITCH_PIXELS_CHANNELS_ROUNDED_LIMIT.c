{# One channel of a depthwise convolution: strides, bytes between rows of the plane, pixels per output row, output
   channels. #}
{% import "dsp.j2" as dsp %}
{% set pairs, step = pixels // 2, 4 * across %}
{% set distance = pitch * down - pairs * step %}
{% macro pixel(count) %}
ldrd r10, r11, [sp, #8]
{% for one, other in (("r2", "r3"), ("r4", "r5"), ("r6", "r7")) %}
{% set at = loop.index0 * pitch %}
ldrd r8, r9, [r0, #{{ at }}]
smlad r10, r8, {{ one }}, r10
smlabt r10, r9, {{ other }}, r10
{% if count == 2 and across == 1 %}
smlatb r11, r8, {{ one }}, r11
smlad r11, r9, {{ other }}, r11
{% elif count == 2 %}
ldr r8, [r0, #{{ at + 8 }}]
smlad r11, r9, {{ one }}, r11
smlabt r11, r8, {{ other }}, r11
{% endif %}
{% endfor %}
ldrd r8, r9, [sp]
{% for sum in ("r10", "r11")[:count] %}
{{ dsp.scale(sum, "r8", "r9", rounded, limit, free="r9" if loop.last) }}
{% if channels > 255 %}
strb {{ sum }}, [r1]
addw r1, r1, #{{ channels }}
{% else %}
strb {{ sum }}, [r1], #{{ channels }}
{% endif %}
{% endfor %}
{% endmacro %}
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(int8_t *output, const int16_t *plane, const int32_t *stream, int32_t rows)
{
    const uintptr_t state[10] = {
        (uintptr_t)stream[7], (uintptr_t)stream[8], (uintptr_t)stream[6], (uintptr_t)stream[6],
        {{ pairs * step }}u, (uintptr_t)rows, (uintptr_t)plane, (uintptr_t)output, (uintptr_t)stream[9],
        (uintptr_t)stream};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        {# Stack: multiplier, offset, bias twice, size of a row's pairs, rows left. #}
        ldm %0, {r0-r9}
        push {r0-r5}
        mov r12, r8
        mov r0, r6
        mov r1, r7
        ldm r9, {r2-r7}
        2:
        {% if pairs > 1 %}
        ldr lr, [sp, #16]
        add lr, r0
        1:
        {% endif %}
        {% if pairs %}
        {{ pixel(2) }}
        add r0, #{{ step }}
        {% endif %}
        {% if pairs > 1 %}
        cmp r0, lr
        bne 1b
        {% endif %}
        {{ pixel(1) if pixels % 2 }}
        {% if distance %}
        {{ "addw" if distance > 0 else "subw" }} r0, r0, #{{ distance|abs }}
        {% endif %}
        ldr r8, [sp, #20]
        subs r8, #1
        str r8, [sp, #20]
        bne 2b
        add sp, #24
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}
#else
static inline void {{ name }}(int8_t *output, const int16_t *plane, const int32_t *stream, int32_t rows)
{
    dsp_plane(output, plane, stream, rows, {{ across }}, {{ down * pitch // 2 }}, {{ pitch // 2 }}, {{ pixels }}, {{ channels }}, {{ dsp.limits(limit) }});
}
#endif
