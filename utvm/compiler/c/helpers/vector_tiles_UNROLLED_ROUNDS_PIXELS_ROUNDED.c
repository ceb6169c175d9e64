{# Keeps eight sums, of four channels and two pixels or eight channels and one pixel. A window is ROUNDS runs of UNROLLED
   vectors of 16 bytes; up to 18 vectors are unrolled, more are a loop. ROUNDED is 1 if halves below zero must be rounded
   away from it. #}
{% set looped = rounds > 1 and unrolled * rounds > 18 %}
{% set sums = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr") %}
{# The next run of a window. #}
{% macro step() %}
add r3, r3, r7
{{ "add r5, r5, r7" if pixels == 2 }}
{% endmacro %}
{% macro products() %}
.rept {{ unrolled }}
vldrb.u8 q0, [r3], #16
{{ "vldrb.u8 q1, [r5], #16" if pixels == 2 }}
{% for number in range(8 // pixels) %}
vldrw.u32 q{{ 2 + number % 2 }}, [r1], #16
vmladava.s8 {{ sums[number] }}, q0, q{{ 2 + number % 2 }}
{% if pixels == 2 %}
vmladava.s8 {{ sums[4 + number] }}, q1, q{{ 2 + number % 2 }}
{% endif %}
{% endfor %}
.endr
{% endmacro %}
{# Multiplies and rounds, then shifts by one bit at least and rounds again, as gemmlowp does, with a correction below
   zero. #}
{% macro scale(sum, free) %}
vqrdmulh.s32 {{ sum }}, {{ sum }}, q2
{% if rounded %}
vshr.s32 {{ free }}, {{ sum }}, #31
vqadd.s32 {{ sum }}, {{ sum }}, {{ free }}
{% endif %}
vrshl.s32 {{ sum }}, {{ sum }}, q3
{% endmacro %}
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
/* vector_tiles for one length. Sums: r0 r2 r4 r6 of four channels, r8 r10 r12 lr of the next pixel or channels;
 * r1 stream, r3 and r5 pixels, r7 step, r9 output, r11 the end of the stream or of the window. */
static __attribute__((noinline)) void {{ name }}(const struct vector_tiles *call)
{
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        mov r0, %0
        {# Stack: sums, pixels, output and stream, pairs, next, output_next, mask, end, span. #}
        sub sp, #76
        ldrd r1, r2, [r0]
        strd r1, r2, [sp, #32]
        ldrd r1, r2, [r0, #8]
        strd r1, r2, [sp, #40]
        ldrd r11, r1, [r0, #16]
        str r1, [sp, #48]
        ldrd r7, r1, [r0, #24]
        ldr r2, [r0, #32]
        strd r1, r2, [sp, #52]
        ldrd r1, r2, [r0, #52]
        str r1, [sp, #60]
        {{ "strd r11, r2, [sp, #64]" if looped }}
        ldrd r1, r2, [r0, #40]
        vdup.16 q4, r1
        vdup.16 q5, r2
        ldr r1, [r0, #48]
        vdup.16 q6, r1
        mov r2, #0
        {% if pixels == 1 %}
        vidup.u16 q7, r2, #1
        {% else %}
        {# Halfwords 0, apart, 1, apart + 1, 2, apart + 2, 3, apart + 3. #}
        vidup.u32 q7, r2, #1
        ldr r1, [r0, #36]
        lsl r1, r1, #16
        mov r2, #65537
        vmul.i32 q7, q7, r2
        vadd.i32 q7, q7, r1
        {% endif %}
        1:
        ldrd r3, r5, [sp, #32]
        ldrd r9, r1, [sp, #40]
        2:
        {# Both pixels use the same channels. #}
        ldm r1{{ "!" if pixels == 1 }}, {r0, r2, r4, r6}
        ldm r1!, {r8, r10, r12, lr}
        {% if looped %}
        ldr r11, [sp, #68]
        add r11, r3, r11
        5:
        {{ products() }}
        {{ step() }}
        cmp r3, r11
        bne.w 5b
        {% else %}
        {% for number in range(rounds) %}
        {{ step() if number }}
        {{ products() }}
        {% endfor %}
        {% endif %}
        ldrd r3, r5, [sp, #32]
        vldrw.u32 q2, [r1], #16
        vldrw.u32 q3, [r1], #16
        stm sp, {r0, r2, r4, r6, r8, r10, r12, lr}
        vldrw.u32 q0, [sp]
        {{ scale("q0", "q1") }}
        {% if pixels == 1 %}
        vldrw.u32 q2, [r1], #16
        vldrw.u32 q3, [r1], #16
        {% endif %}
        vldrw.u32 q1, [sp, #16]
        {{ scale("q1", "q2") }}
        vqmovnb.s32 q0, q0
        vqmovnt.s32 q0, q1
        vqadd.s16 q0, q0, q4
        vmax.s16 q0, q0, q5
        vmin.s16 q0, q0, q6
        {{ "ldr r11, [sp, #64]" if looped }}
        cmp r1, r11
        beq 3f
        vstrb.16 q0, [r9, q7]
        add r9, r9, #{{ 8 // pixels }}
        b.w 2b
        3:
        ldr r0, [sp, #60]
        vmsr p0, r0
        vpst
        vstrbt.16 q0, [r9, q7]
        ldr r0, [sp, #48]
        subs r0, r0, #1
        str r0, [sp, #48]
        beq 4f
        ldrd r0, r2, [sp, #52]
        ldrd r4, r6, [sp, #32]
        add r4, r4, r0
        add r6, r6, r0
        strd r4, r6, [sp, #32]
        ldr r4, [sp, #40]
        add r4, r4, r2
        str r4, [sp, #40]
        b.w 1b
        4:
        add sp, #76
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(call)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
}
#else
static inline void {{ name }}(const struct vector_tiles *call)
{
{% if pixels == 1 %}
    vector_tiles(call, {{ unrolled }}, {{ rounds }}, 1);
{% else %}
    vector_pairs(call, {{ unrolled }}, {{ rounds }});
{% endif %}
}
#endif
