#define DENSE_PAIR(at) \
    upper = (uint32_t)values[(at) + 2] + (uint32_t)values[(at)] * ((uint32_t)words[(at) / 2] >> 8 & 0xff00ffu) + \
            (uint32_t)values[(at) + 3] * ((uint32_t)words[(at) / 2 + 1] >> 8 & 0xff00ffu); \
    lower = (uint32_t)values[(at) + 1] + (uint32_t)values[(at)] * (uint32_t)words[(at) / 2] + \
            (uint32_t)values[(at) + 3] * (uint32_t)words[(at) / 2 + 1] - (upper << 8); \
    first += lower; \
    second += upper; \
    third += (int32_t)lower >> 16; \
    fourth += (int32_t)upper >> 16;

/* Sums of products of one row of values with the weights of four channels. values: from expand_pairs, up to end.
 * words: for each value the four weights plus 128, the first lowest. A product with a word, modulo 2^32, is four of
 * them; without those of the second and fourth weight it is two, in either half, which two values' products do not
 * overflow. The sums of the first two have the others' times 2^16, and 2^15 for each two values. */
static __attribute__((noinline)) void {{ name }}(
    uint32_t *sums, const int32_t *values, const int32_t *end, const int32_t *words)
{
#if defined(__thumb__)
    const uintptr_t state[4] = {(uintptr_t)values, (uintptr_t)words, 0xff00ffu, (uintptr_t)end};
#if defined(__thumb2__)
    __asm__ volatile(
{% filter instructions %}
        mov r0, %0
        push {r4-r11, lr}
        push { %1 }
        ldm r0, {r0, r1, r8, lr}
        mov r9, #0
        mov r10, #0
        mov r11, #0
        mov r12, #0
        1:
        .rept 2
        ldm r0!, {r2-r5}
        ldm r1!, {r6, r7}
        mla r3, r2, r6, r3
        mla r3, r5, r7, r3
        and r6, r8, r6, ror #8
        and r7, r8, r7, ror #8
        mla r4, r2, r6, r4
        mla r4, r5, r7, r4
        sub r3, r3, r4, lsl #8
        add r9, r9, r3
        add r11, r11, r3, asr #16
        add r10, r10, r4
        add r12, r12, r4, asr #16
        .endr
        cmp r0, lr
        bne 1b
        pop {r1}
        stm r1, {r9-r12}
        pop {r4-r11, lr}
{% endfilter %}
        :
        : "r"(state), "r"(sums)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
#else
    __asm__ volatile(
{% filter instructions %}
        .syntax unified
        mov r0, %0
        mov r3, %1
        push {r4-r7}
        mov r4, r8
        mov r5, r9
        mov r6, r10
        mov r7, r11
        push {r3-r7}
        ldm r0!, {r6, r7}
        ldm r0!, {r3, r4}
        mov r12, r4
        movs r0, #0
        mov r8, r0
        mov r9, r0
        mov r10, r0
        mov r11, r0
        1:
        .rept 2
        ldm r6!, {r0, r4, r5}
        {% for half in range(2) %}
        {{ "ldm r6!, {r0}" if half }}
        ldm r7!, {r1}
        mov r2, r1
        muls r2, r0
        adds r4, r4, r2
        lsrs r1, r1, #8
        ands r1, r3
        muls r1, r0
        adds r5, r5, r1
        {% endfor %}
        lsls r1, r5, #8
        subs r4, r4, r1
        add r8, r4
        asrs r4, r4, #16
        add r10, r4
        add r9, r5
        asrs r5, r5, #16
        add r11, r5
        .endr
        cmp r6, r12
        bne 1b
        pop {r0, r4-r7}
        mov r1, r8
        mov r2, r9
        mov r3, r10
        stm r0!, {r1-r3}
        mov r1, r11
        str r1, [r0]
        mov r8, r4
        mov r9, r5
        mov r10, r6
        mov r11, r7
        pop {r4-r7}
{% endfilter %}
        :
        : "l"(state), "l"(sums)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
#endif
#else
    uint32_t first = 0;
    uint32_t second = 0;
    int32_t third = 0;
    int32_t fourth = 0;
    for (; values != end; values += 8) {
        uint32_t lower, upper;
        DENSE_PAIR(0)
        DENSE_PAIR(4)
        words += 4;
    }
    sums[0] = first;
    sums[1] = second;
    sums[2] = (uint32_t)third;
    sums[3] = (uint32_t)fourth;
#endif
}
