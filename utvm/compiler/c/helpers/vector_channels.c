/* What vector_channels computes: a row of a depthwise convolution, one channel after the other. All fields are words,
 * which the assembly reads by their places.
 * strip: [column][channel][4 rows] from what the first pixel sees; stream: for each channel of the output its weights
 * [4 columns][4 rows], bias, multiplier, shift (not positive), and how many bytes the next channel's column lies behind
 * this one's. channels, pixels: of the output; line: bytes of a column of the strip; next: of stride columns. */
struct vector_channels {
    const int8_t *strip;
    int8_t *output;
    const int32_t *stream;
    int32_t channels;
    int32_t pixels;
    int32_t line;
    int32_t next;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
/* A gathered vector is four columns of a channel, its product with the weights a pixel; four pixels are scaled together.
 * Sums r0 r2 r4 r6; r1 strip, r3 output, r5 biases, r7 multiplier, r8 next, r9 shift, r10 four pixels of the output,
 * r11 zero, r12 pixels left, lr stream. On the stack: sums, biases, low and high, strip, output, pixels, channels. */
static __attribute__((noinline)) void vector_channels(const struct vector_channels *call)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n"
        "mov r0, %0\n"
        "sub sp, #60\n"
        "ldrd r1, r3, [r0]\n"
        "ldrd lr, r2, [r0, #8]\n"
        "ldrd r4, r6, [r0, #16]\n"
        "ldrd r8, r11, [r0, #24]\n"
        "strd r1, r3, [sp, #40]\n"
        "strd r4, r2, [sp, #48]\n"
        "lsl r10, r2, #2\n"
        "mov r4, #0\n"
        "vidup.u32 q6, r4, #1\n"
        "vmul.i32 q7, q6, r6\n"
        "vmul.i32 q6, q6, r2\n"
        "ldrd r4, r6, [r0, #32]\n"
        "strd r4, r6, [sp, #32]\n"
        "vdup.32 q3, r4\n"
        "vdup.32 q4, r6\n"
        "add r5, sp, #16\n"
        "1:\n"
        "ldrd r1, r3, [sp, #40]\n"
        "ldr r12, [sp, #48]\n"
        "vldrw.u32 q1, [lr], #16\n"
        "ldr r6, [lr]\n"
        "ldrd r7, r9, [lr, #4]\n"
        "vdup.32 q0, r6\n"
        "vstrw.32 q0, [sp, #16]\n"
        "vdup.32 q5, r9\n"
        "2:\n"
        "ldm r5, {r0, r2, r4, r6}\n"
        "vldrw.u32 q0, [r1, q7]\n"
        "add r1, r1, r8\n"
        "vmladava.s8 r0, q0, q1\n"
        "vldrw.u32 q2, [r1, q7]\n"
        "add r1, r1, r8\n"
        "vmladava.s8 r2, q2, q1\n"
        "vldrw.u32 q0, [r1, q7]\n"
        "add r1, r1, r8\n"
        "vmladava.s8 r4, q0, q1\n"
        "vldrw.u32 q2, [r1, q7]\n"
        "add r1, r1, r8\n"
        "vmladava.s8 r6, q2, q1\n"
        "stm sp, {r0, r2, r4, r6}\n"
        "vldrw.u32 q0, [sp]\n"
        "vqrdmulh.s32 q0, q0, r7\n"
        "vand q2, q0, q5\n"
        "vshr.s32 q2, q2, #31\n"
        "vqadd.s32 q0, q0, q2\n"
        "vrshl.s32 q0, r9\n"
        "vadd.i32 q0, q0, r11\n"
        "vmax.s32 q0, q0, q3\n"
        "vmin.s32 q0, q0, q4\n"
        "vctp.32 r12\n"
        "vpst\n"
        "vstrbt.32 q0, [r3, q6]\n"
        "add r3, r3, r10\n"
        "subs r12, r12, #4\n"
        "bgt 2b\n"
        "ldr r0, [lr, #12]\n"
        "add lr, lr, #16\n"
        "ldrd r1, r3, [sp, #40]\n"
        "add r1, r1, r0\n"
        "add r3, r3, #1\n"
        "strd r1, r3, [sp, #40]\n"
        "ldr r0, [sp, #52]\n"
        "subs r0, r0, #1\n"
        "str r0, [sp, #52]\n"
        "bne 1b\n"
        "add sp, #60\n"
        "pop {r4-r11, lr}\n"
        :
        : "r"(call)
        : "r0", "r1", "r2", "r3", "r12", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory");
}
#elif defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN)
/* The four columns of a pixel's window are four words of a vector. */
#define VECTOR_PIXEL(sum) \
    taps = vdupq_n_s32(0); \
    taps = vld1q_lane_s32((const int32_t *)at, taps, 0); \
    taps = vld1q_lane_s32((const int32_t *)(at + call->line), taps, 1); \
    taps = vld1q_lane_s32((const int32_t *)(at + 2 * call->line), taps, 2); \
    taps = vld1q_lane_s32((const int32_t *)(at + 3 * call->line), taps, 3); \
    values = vreinterpretq_s8_s32(taps); \
    sum = vpaddlq_s16(vmull_s8(vget_low_s8(values), vget_low_s8(weights))); \
    sum = vpadalq_s16(sum, vmull_s8(vget_high_s8(values), vget_high_s8(weights))); \
    at += call->next;

static inline void vector_channels(const struct vector_channels *call)
{
    const int8_t *strip = call->strip;
    const int32_t *stream = call->stream;
    const int16x4_t zero = vdup_n_s16((int16_t)call->zero);
    const int16x4_t low = vdup_n_s16((int16_t)call->low);
    const int16x4_t high = vdup_n_s16((int16_t)call->high);
    for (int32_t channel = 0; channel < call->channels; ++channel) {
        const int8x16_t weights = vld1q_s8((const int8_t *)stream);
        const int32_t scale[8] = {
            stream[5], stream[5], stream[5], stream[5], stream[6], stream[6], stream[6], stream[6]};
        const int32x4_t bias = vdupq_n_s32(stream[4]);
        const int8_t *at = strip;
        int8_t *output = call->output + channel;
        for (int32_t left = call->pixels; left > 0; left -= 4) {
            int32x4_t taps;
            int8x16_t values;
            int32x4_t sum_0;
            int32x4_t sum_1;
            int32x4_t sum_2;
            int32x4_t sum_3;
            VECTOR_PIXEL(sum_0)
            VECTOR_PIXEL(sum_1)
            VECTOR_PIXEL(sum_2)
            VECTOR_PIXEL(sum_3)
            {
                const int16x4_t scaled = vector_scaled(sum_0, sum_1, sum_2, sum_3, bias, scale);
                const int16x4_t made = vmin_s16(vmax_s16(vqadd_s16(scaled, zero), low), high);
                int16_t results[4];
                vst1_s16(results, made);
                for (int32_t pixel = 0; pixel < 4 && pixel < left; ++pixel) {
                    *output = (int8_t)results[pixel];
                    output += call->channels;
                }
            }
        }
        strip += stream[7];
        stream += 8;
    }
}
#else
static inline void vector_channels(const struct vector_channels *call)
{
    const int8_t *strip = call->strip;
    const int32_t *stream = call->stream;
    for (int32_t channel = 0; channel < call->channels; ++channel) {
        const int8_t *const weights = (const int8_t *)stream;
        for (int32_t pixel = 0; pixel < call->pixels; ++pixel) {
            uint32_t sum = (uint32_t)stream[4];
            for (int32_t tap = 0; tap < 16; ++tap) {
                sum += (uint32_t)(strip[pixel * call->next + tap / 4 * call->line + tap % 4] * weights[tap]);
            }
            const int32_t value = requantize((int32_t)sum, stream[5], stream[6]) + call->zero;
            call->output[pixel * call->channels + channel] =
                (int8_t)(value < call->low ? call->low : value > call->high ? call->high : value);
        }
        strip += stream[7];
        stream += 8;
    }
}
#endif
