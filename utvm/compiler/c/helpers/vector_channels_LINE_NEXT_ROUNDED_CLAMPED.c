{# LINE: bytes of a column of the strip; NEXT, at most 508: from what a pixel sees to what the next one sees. ROUNDED is 1 if halves below
   zero must be rounded away from it, CLAMPED if outputs have other limits than int8. #}
{% set sums = ("r0", "r8", "r2", "r10", "r4", "r12", "r6", "lr") %}
{# Eight pixels, of which the first few count at the tail of a row. #}
{% macro pixels(tail) %}
        ldm sp, {r0, r2, r4, r6, r8, r10, r12, lr}
{% for sum in sums %}
        {% set vector = "q2" if loop.index0 % 2 else "q0" %}
        vldrw.u32 {{ vector }}, [q7, #{{ next }}]!
        vmladava.s8 {{ sum }}, {{ vector }}, q1
{% if tail and loop.index == 4 %}
        cmp r1, #4
        ble.n 4f
{% endif %}
{% endfor %}
        4:
        stm r5, {r0, r2, r4, r6, r8, r10, r12, lr}
        vldrw.u32 q0, [r5]
        vldrw.u32 q2, [r5, #16]
{% for result in ("q0", "q2") %}
        vqrdmulh.s32 {{ result }}, {{ result }}, r7
{% if rounded %}
        vshr.s32 q5, {{ result }}, #31
        vqadd.s32 {{ result }}, {{ result }}, q5
{% endif %}
        vrshl.s32 {{ result }}, r9
{% endfor %}
        vqmovnb.s32 q0, q0
        vqmovnt.s32 q0, q2
        vqadd.s16 q0, q0, r11
{% if clamped %}
        vmax.s16 q0, q0, q3
        vmin.s16 q0, q0, q4
{% else %}
        vqmovnb.s16 q0, q0
{% endif %}
{% endmacro %}
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
/* A gathered vector is four columns of a channel, its product with the weights a pixel; eight pixels are scaled together.
 * r1 pixels left, r3 output, r5 sums in memory, r7 multiplier, r9 shift, r11 zero; q1 weights, q3 low, q4 high, q6 places of
 * eight pixels, q7 addresses of four columns. */
static __attribute__((noinline)) void {{ name }}(const struct vector_block *call)
{
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        mov r0, %0
        {# Stack: eight biases, eight sums, addresses of the channel's first columns; then words: eight pixels of the
           output, stream, end, pixels, output. #}
        sub sp, #100
        ldrd r1, r3, [r0]
        ldrd r2, r4, [r0, #8]
        strd r2, r4, [sp, #84]
        ldrd r6, r8, [r0, #16]
        strd r6, r3, [sp, #92]
        lsl r10, r8, #3
        str r10, [sp, #80]
        ldrd r11, r6, [r0, #24]
        ldr r7, [r0, #32]
        vdup.16 q3, r6
        vdup.16 q4, r7
        mov r4, #0
        vidup.u16 q6, r4, #1
        vmul.i16 q6, q6, r8
        mov r4, #0
        vidup.u32 q7, r4, #1
        mov r4, #{{ line }}
        vmul.i32 q7, q7, r4
        vadd.i32 q7, q7, r1
        vstrw.32 q7, [sp, #64]
        add r5, sp, #32
        1:
        ldr r0, [sp, #84]
        vldrw.u32 q1, [r0], #16
        ldrd r2, r7, [r0], #8
        ldrd r9, r4, [r0], #8
        str r0, [sp, #84]
        vdup.32 q0, r2
        vstrw.32 q0, [sp]
        vstrw.32 q0, [sp, #16]
        ldrd r1, r3, [sp, #92]
        add r2, r3, #1
        str r2, [sp, #96]
        vldrw.u32 q7, [sp, #64]
        vadd.i32 q0, q7, r4
        vstrw.32 q0, [sp, #64]
        mov r4, #{{ next }}
        vsub.i32 q7, q7, r4
        subs r1, r1, #8
        blt.w 3f
        2:
        {{ pixels(false) }}
        vstrb.16 q0, [r3, q6]
        ldr r0, [sp, #80]
        add r3, r3, r0
        subs r1, r1, #8
        bge.w 2b
        3:
        adds r1, r1, #8
        beq.w 5f
        {{ pixels(true) }}
        vctp.16 r1
        vpst
        vstrbt.16 q0, [r3, q6]
        5:
        ldrd r0, r2, [sp, #84]
        cmp r0, r2
        bne.w 1b
        add sp, #100
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(call)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
}
#elif defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN)
static inline void {{ name }}(const struct vector_block *call)
{
    const int8_t *strip = call->strip;
    int8_t *first = call->output;
    const int16x4_t zero = vdup_n_s16((int16_t)call->zero);
    const int16x4_t low = vdup_n_s16((int16_t)call->low);
    const int16x4_t high = vdup_n_s16((int16_t)call->high);
    for (const int32_t *stream = call->stream; stream != call->end; stream += 8) {
        const int8x16_t weights = vld1q_s8((const int8_t *)stream);
        const int32_t scale[8] = {
            stream[5], stream[5], stream[5], stream[5], stream[6], stream[6], stream[6], stream[6]};
        const int32x4_t bias = vdupq_n_s32(stream[4]);
        const int8_t *at = strip;
        int8_t *output = first;
        for (int32_t left = call->pixels; left > 0; left -= 4) {
{% for pixel in range(4) %}
            {# The four columns of a pixel's window are four words of a vector. #}
            int32x4_t taps{{ pixel }} = vdupq_n_s32(0);
{% for column in range(4) %}
            taps{{ pixel }} = vld1q_lane_s32((const int32_t *)(at + {{ pixel * next + column * line }}), taps{{ pixel }}, {{ column }});
{% endfor %}
            const int8x16_t values{{ pixel }} = vreinterpretq_s8_s32(taps{{ pixel }});
            int32x4_t sum{{ pixel }} = vpaddlq_s16(vmull_s8(vget_low_s8(values{{ pixel }}), vget_low_s8(weights)));
            sum{{ pixel }} = vpadalq_s16(sum{{ pixel }}, vmull_s8(vget_high_s8(values{{ pixel }}), vget_high_s8(weights)));
{% endfor %}
            const int16x4_t scaled = vector_scaled(sum0, sum1, sum2, sum3, bias, scale);
            int16_t results[4];
            vst1_s16(results, vmin_s16(vmax_s16(vqadd_s16(scaled, zero), low), high));
            for (int32_t pixel = 0; pixel < 4 && pixel < left; ++pixel) {
                *output = (int8_t)results[pixel];
                output += call->apart;
            }
            at += {{ 4 * next }};
        }
        strip += stream[7];
        ++first;
    }
}
#else
static inline void {{ name }}(const struct vector_block *call)
{
    const int8_t *strip = call->strip;
    int8_t *output = call->output;
    for (const int32_t *stream = call->stream; stream != call->end; stream += 8) {
        const int8_t *const weights = (const int8_t *)stream;
        for (int32_t pixel = 0; pixel < call->pixels; ++pixel) {
            uint32_t sum = (uint32_t)stream[4];
            for (int32_t tap = 0; tap < 16; ++tap) {
                sum += (uint32_t)(strip[pixel * {{ next }} + tap / 4 * {{ line }} + tap % 4] * weights[tap]);
            }
            const int32_t value = requantize((int32_t)sum, stream[5], stream[6]) + call->zero;
            output[pixel * call->apart] =
                (int8_t)(value < call->low ? call->low : value > call->high ? call->high : value);
        }
        strip += stream[7];
        ++output;
    }
}
#endif
