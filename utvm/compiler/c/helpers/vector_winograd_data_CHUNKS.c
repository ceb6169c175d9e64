{% import "vector_winograd.j2" as winograd %}
/* Transforms the rows of two tiles of six columns, which vector_winograd_columns has transformed. pixels: of a row of the
 * strip. output: [36 positions][chunk of 8 channels][2 tiles][8]. */
static void {{ name }}(int16_t *output, const int16_t *strip, int32_t pixels)
{
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
    const uintptr_t state[3] = {(uintptr_t)output, (uintptr_t)strip, (uintptr_t)(96 * pixels)};
    __asm__ volatile(
{% filter instructions %}
        push {r4-r7, lr}
        ldm %0, {r1-r3}
        mov r4, #4
        mvn r5, #3
        mov r6, #{{ chunks }}
        1:
{% for tile in range(2) %}
        add r7, r1, #{{ 16 * tile }}
        add r0, r2, #{{ 384 * tile }}
        mov r12, #6
        dls lr, r12
        2:
{% for x in range(1, 6) %}
        vldrw.u32 q{{ x }}, [r0, #{{ 96 * x }}]
{% endfor %}
        vldrw.u32 q0, [r0], #16
        {{ winograd.transform("r4", "r5") }}
{% for result in winograd.results %}
        {{ winograd.move("vstrw.32", result, "r7", 32 * chunks, 508) }}
{% endfor %}
        le lr, 2b
{% endfor %}
        add r1, r1, #32
        add r2, r2, r3
        subs r6, r6, #1
        bne.w 1b
        pop {r4-r7, lr}
{% endfilter %}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
#else
    for (int32_t number = 0; number < {{ 2 * chunks }}; ++number) {
        const int16_t *from = strip + 48 * (number / 2 * pixels + 4 * (number % 2));
        int16_t *to = output + 8 * number;
        for (int32_t y = 0; y < 6; ++y) {
            for (int32_t lane = 0; lane < 8; ++lane) {
{% for x in range(6) %}
                const int32_t d{{ x }} = from[lane + {{ 48 * x }}];
{% endfor %}
{{ winograd.numbers("to", 16 * chunks) -}}
            }
            from += 8;
            to += {{ 96 * chunks }};
        }
    }
#endif
}
