{# A^T m A, whose results are 9 * 2^k times the convolution's: 64 times 9 down to 4 times 9. If wide, they are divided
   modulo 2^32, where 1/9 is 954437177; else rounding finds the quotient, as 3728270 is close enough to 2^31 / 576. #}
{# Values in q0 to q5, results in q0, q3, q2, q5. Registers: r10 has -4, r11 -2, r12 2. #}
{% macro transform() %}
        vadd.i32 q6, q1, q2
        vsub.i32 q1, q1, q2
        vadd.i32 q2, q3, q4
        vsub.i32 q3, q3, q4
        vadd.i32 q0, q0, q2
        vsub.i32 q5, q5, q1
        vmla.s32 q0, q6, r10
        vsub.i32 q2, q2, q6
        vmla.s32 q5, q3, r12
        vmla.s32 q3, q1, r11
{% endmacro %}
{% set results = ("q0", "q3", "q2", "q5") %}
{% set factor = 954437177 if wide else 3728270 %}
{% set powers = (6, 5, 4, 4) %}
{% set quotients = {6: "r4", 5: "r5", 4: "r6", 3: "r7", 2: "r8"} %}
/* Turns sums, [36 positions][2 tiles][4 channels], into 4 x 4 outputs of each tile and channel. channels, pitch: from
 * one pixel, and from one row, to the next. scales: of four channels 36 times the bias, then the multipliers and the
 * shifts of requantize, which are negative. limits: zero, low and high. */
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(
    int8_t *output, int32_t *sums, const int32_t *scales, const int32_t *limits, int32_t channels, int32_t pitch)
{
    int32_t columns[96];
    const uintptr_t state[7] = {
        (uintptr_t)output, (uintptr_t)sums, (uintptr_t)scales, (uintptr_t)limits, (uintptr_t)channels,
        (uintptr_t)pitch, (uintptr_t)columns};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        ldm %0, {r0-r6}
        mov r12, #0
        vidup.u32 q7, r12, #1
        lsl r7, r5, #16
        mov r12, #65537
        vmul.i32 q7, q7, r12
        vadd.i32 q7, q7, r7
        {# Stack: lowest and highest value, output, sums, scales, channels, pitch, columns, tile. #}
        sub sp, #64
        ldrd r7, r8, [r3, #4]
        vdup.16 q0, r7
        vdup.16 q1, r8
        vstrw.32 q0, [sp]
        vstrw.32 q1, [sp, #16]
        ldr r9, [r3]
        mvn r10, #3
        mvn r11, #1
        mov r12, #2
        lsl r3, r5, #1
        vldrw.u32 q2, [r2]
{% for tile in range(2) %}
        vldrw.u32 q{{ tile }}, [r1, #{{ 224 + 16 * tile }}]
        vadd.i32 q{{ tile }}, q{{ tile }}, q2
        vstrw.32 q{{ tile }}, [r1, #{{ 224 + 16 * tile }}]
{% endfor %}
        strd r0, r1, [sp, #32]
        strd r4, r6, [sp, #40]
        mov r7, #2
        1:
        str r7, [sp, #48]
        ldrd r4, r6, [sp, #40]
        ldr r1, [sp, #36]
        mov r7, #6
        dls lr, r7
        2:
{% for i in range(6) %}
        vldrw.u32 q{{ i }}, [r1], #32
{% endfor %}
        {{ transform() }}
{% for i in (1, 2, 3) %}
        vstrw.32 {{ results[i] }}, [r6, #{{ 96 * i }}]
{% endfor %}
        vstrw.32 q0, [r6], #16
        le lr, 2b
        ldr r1, [sp, #44]
        ldr r0, [sp, #32]
        mov lr, r4
        movw r4, #{{ factor % 65536 }}
        movt r4, #{{ factor // 65536 }}
{% if not wide %}
{% for power in (5, 4, 3, 2) %}
        lsl {{ quotients[power] }}, {{ quotients[power + 1] }}, #1
{% endfor %}
{% endif %}
{% for x in range(4) %}
{% for i in range(6) %}
        vldrw.u32 q{{ i }}, [r1], #16
{% endfor %}
        {{ transform() }}
        vldrw.u32 q1, [r2, #16]
        vldrw.u32 q4, [r2, #32]
{% for result in results %}
{% set power = powers[loop.index0] + powers[x] - 6 %}
{% if wide %}
        vmul.i32 {{ result }}, {{ result }}, r4
        vshr.s32 {{ result }}, {{ result }}, #{{ power }}
{% else %}
        vqrdmulh.s32 {{ result }}, {{ result }}, {{ quotients[power] }}
{% endif %}
{% endfor %}
{% for result in results %}
        vqrdmulh.s32 {{ result }}, {{ result }}, q1
{% endfor %}
{% for result in results %}
{% if rounded %}
        vshr.s32 q6, {{ result }}, #31
        vqadd.s32 {{ result }}, {{ result }}, q6
{% endif %}
        vrshl.s32 {{ result }}, {{ result }}, q4
{% endfor %}
{% for one, other in (("q0", "q3"), ("q2", "q5")) %}
        vqmovnb.s32 {{ one }}, {{ one }}
        vqmovnt.s32 {{ one }}, {{ other }}
        vqadd.s16 {{ one }}, {{ one }}, r9
{% endfor %}
{% if clamped %}
        vldrw.u32 q1, [sp]
        vldrw.u32 q4, [sp, #16]
{% endif %}
{% for result in ("q0", "q2") %}
{% if clamped %}
        vmax.s16 {{ result }}, {{ result }}, q1
        vmin.s16 {{ result }}, {{ result }}, q4
{% else %}
        vqmovnb.s16 {{ result }}, {{ result }}
{% endif %}
{% endfor %}
        vstrb.16 q0, [r0, q7]
        add r0, r0, r3
        vstrb.16 q2, [r0, q7]
        sub r0, r0, r3
        add r0, r0, lr
{% endfor %}
        str r0, [sp, #32]
        ldr r1, [sp, #36]
        add r1, r1, #16
        str r1, [sp, #36]
        ldr r7, [sp, #48]
        subs r7, r7, #1
        bne.w 1b
        add sp, #64
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
}
#else
static void {{ name }}(
    int8_t *output, int32_t *sums, const int32_t *scales, const int32_t *limits, int32_t channels, int32_t pitch)
{
    for (int32_t lane = 0; lane < 8; ++lane) {
        const int32_t *const scale = scales + lane % 4;
        int8_t *const to = output + lane % 4 + lane / 4 * 4 * channels;
        uint32_t columns[24];
        sums[56 + lane] = (int32_t)((uint32_t)sums[56 + lane] + (uint32_t)scale[0]);
        for (int32_t number = 0; number < 10; ++number) {
            uint32_t m[6];
            for (int32_t i = 0; i < 6; ++i) {
                m[i] = number < 6 ? (uint32_t)sums[48 * number + 8 * i + lane] : columns[6 * (number - 6) + i];
            }
            {
                const uint32_t first = m[1] + m[2];
                const uint32_t second = m[1] - m[2];
                const uint32_t third = m[3] + m[4];
                const uint32_t fourth = m[3] - m[4];
                const uint32_t made[4] = {
                    m[0] + third - 4u * first, fourth - 2u * second, third - first, m[5] - second + 2u * fourth};
                for (int32_t i = 0; i < 4; ++i) {
                    if (number < 6) {
                        columns[6 * i + number] = made[i];
                    } else {
                        const int32_t x = number - 6;
                        const int32_t power = 6 - (i < 2 ? i : 2) - (x < 2 ? x : 2);
                        const int32_t sum = (int32_t)(made[i] * 954437177u) >> power;
                        const int32_t value = requantize(sum, scale[4], scale[8]) + limits[0];
                        to[x * channels + i * pitch] =
                            (int8_t)(value < limits[1] ? limits[1] : value > limits[2] ? limits[2] : value);
                    }
                }
            }
        }
    }
}
#endif
