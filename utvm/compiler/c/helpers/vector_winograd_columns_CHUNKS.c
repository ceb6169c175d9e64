{% import "vector_winograd.j2" as winograd %}
/* Transforms the columns of six rows of an image and their padding: [chunk of 8 channels][column][6][8]. geometry: see
 * vector_winograd. row: of the output. The first step also writes the padding, and a row behind the strip. */
static void {{ name }}(int16_t *strip, const int8_t *image, const int32_t *geometry, int32_t row)
{
    const int32_t width = geometry[1];
    const int32_t left = geometry[10];
    const int32_t pixels = geometry[17];
    const int32_t inside = width < pixels - left ? width : pixels - left;
    int8_t *const outside = (int8_t *)(strip + {{ 48 * chunks }} * pixels);
    const int8_t *rows[6];
    if (row == 0) {
        vector_fill((int8_t *)strip, 0, {{ 96 * chunks }} * pixels);
        for (int32_t at = 0; at < {{ chunks }} * pixels; ++at) {
            const int32_t column = at % pixels;
            for (int32_t lane = 0; lane < 8 && (column < left || column >= left + inside); ++lane) {
                strip[48 * at + 8 + lane] = (int16_t)(-6 * geometry[12]);
            }
        }
        vector_fill(outside, geometry[12], {{ 8 * chunks }} * width);
    }
    for (int32_t y = 0; y < 6; ++y) {
        const int32_t at = row - geometry[9] + y;
        rows[y] = at >= 0 && at < geometry[0] ? image + at * width * {{ 8 * chunks }} : outside;
    }
    for (int32_t chunk = 0; chunk < {{ chunks }}; ++chunk) {
        int16_t *to = strip + (chunk * pixels + left) * 48;
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
        const uintptr_t state[3] = {(uintptr_t)rows, (uintptr_t)to, (uintptr_t)inside};
        __asm__ volatile(
{% filter instructions %}
        push {r4-r8, lr}
        ldm %0, {r6-r8}
        ldm r6, {r0-r5}
        mov r6, #4
        mvn r12, #3
        wls lr, r8, 2f
        1:
{% for y in range(6) %}
        {{ winograd.move("vldrb.s16", "q%d" % y, "r%d" % y, 8 * chunks, 127) }}
{% endfor %}
        {{ winograd.transform("r6", "r12") }}
{% for result in winograd.results %}
        vstrw.32 {{ result }}, [r7], #16
{% endfor %}
        le lr, 1b
        2:
        pop {r4-r8, lr}
{% endfilter %}
            :
            : "r"(state)
            : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
#else
        for (int32_t column = 0; column < inside; ++column) {
            for (int32_t lane = 0; lane < 8; ++lane) {
{% for y in range(6) %}
                const int32_t d{{ y }} = rows[{{ y }}][{{ 8 * chunks }} * column + lane];
{% endfor %}
{{ winograd.numbers("to", 8) -}}
            }
            to += 48;
        }
#endif
        for (int32_t y = 0; y < 6; ++y) {
            rows[y] += 8;
        }
    }
}
