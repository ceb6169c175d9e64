{# Sums of products at each position, of two tiles and four output channels: 14 instructions for 64 products. #}
{% set sums = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr") %}
{% set rounds = 1 if chunks <= 16 else chunks // 16 %}
{% macro products(add) %}
vldrw.u32 q0, [r1], #16
vldrw.u32 q1, [r1], #16
{% for number in range(4) %}
vldrw.u32 q{{ 2 + number % 2 }}, [r3], #16
vmladav{{ add }}.s16 {{ sums[number] }}, q0, q{{ 2 + number % 2 }}
vmladav{{ add }}.s16 {{ sums[4 + number] }}, q1, q{{ 2 + number % 2 }}
{% endfor %}
{% endmacro %}
/* values: [36 positions][chunk of 8 channels][2 tiles][8]. weights: [36 positions][chunk][4 output channels][8], of 16
 * bits. sums: [36 positions][2 tiles][4 channels], modulo 2^32. */
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {{ name }}(int32_t *sums, const int16_t *values, const int32_t *weights)
{
    const uintptr_t state[4] = {
        (uintptr_t)values, (uintptr_t)weights, (uintptr_t)sums, (uintptr_t)(sums + 288)};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r11, lr}
        ldrd r1, r3, [%0]
        ldrd r5, r7, [%0, #8]
        1:
        {% if rounds == 1 %}
        {{ products("") }}
        .rept {{ chunks - 1 }}
        {{ products("a") }}
        .endr
        {% else %}
        {% for sum in sums %}
        mov {{ sum }}, #0
        {% endfor %}
        mov r9, #{{ rounds }}
        2:
        .rept 16
        {{ products("a") }}
        .endr
        subs r9, r9, #1
        bne.w 2b
        {% endif %}
        stm r5!, {r0, r2, r4, r6, r8, r10, r12, lr}
        cmp r5, r7
        bne.w 1b
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "cc", "memory");
}
#else
static inline void {{ name }}(int32_t *sums, const int16_t *values, const int32_t *weights)
{
    const int8_t *bytes = (const int8_t *)weights;
    for (int32_t position = 0; position < 36; ++position) {
        for (int32_t number = 0; number < 8; ++number) {
            uint32_t sum = 0;
            for (int32_t lane = 0; lane < {{ 8 * chunks }}; ++lane) {
                int16_t weight;
                memcpy(&weight, bytes + 64 * (lane / 8) + 16 * (number % 4) + 2 * (lane % 8), 2);
                sum += (uint32_t)(values[16 * (lane / 8) + 8 * (number / 4) + lane % 8] * weight);
            }
            *sums++ = (int32_t)sum;
        }
        values += {{ 16 * chunks }};
        bytes += {{ 64 * chunks }};
    }
}
#endif
