#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
#include <arm_mve.h>

/* Multiplies eight sums and shifts them, as requantize does, adds the output's zero point and limits them. scale: eight
 * multipliers, of even channels first, and as many shifts to the left, all of which are negative. */
static inline void {{ name }}_store(int8_t *output, int32x4_t even, int32x4_t odd, const int32_t *scale, const int32_t *limits)
{
    int32x4_t low = vqrdmulhq_s32(even, vldrwq_s32(scale));
    int32x4_t high = vqrdmulhq_s32(odd, vldrwq_s32(scale + 4));
{% if rounded %}
    low = vqaddq_s32(low, vshrq_n_s32(low, 31));
    high = vqaddq_s32(high, vshrq_n_s32(high, 31));
{% endif %}
    low = vrshlq_s32(low, vldrwq_s32(scale + 8));
    high = vrshlq_s32(high, vldrwq_s32(scale + 12));
    int16x8_t value = vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(low), low), high);
    value = vqaddq_n_s16(value, (int16_t)limits[0]);
    value = vmaxq_s16(value, vdupq_n_s16((int16_t)limits[1]));
    vstrbq_s16(output, vminq_s16(value, vdupq_n_s16((int16_t)limits[2])));
}
#endif

{% for pixels in (1, 2) %}
{% for full in (false, true) %}
/* Computes {{ "two pixels" if pixels == 2 else "a pixel" }}, which read{{ "s" if pixels == 1 }} {{ "the whole filter" if full else "a part of the filter" }}, eight channels at a time. window: the first value read.
 * weights: of this value. scale: for eight channels, even ones first, the biases of pixels that read the whole filter,
 * those of others, multipliers and shifts. */
static inline void {{ name }}_{{ pixels }}_{{ "whole" if full else "part" }}(
    int8_t *output, const int8_t *window, const int8_t *weights, const int32_t *scale, const struct vector_lanes *call)
{
    const int32_t line = call->line, width = call->width, step = call->step, channels = call->channels;
    const int32_t next = call->next;
    const int32_t *const limits = call->limits;
    for (int32_t rest = channels; rest > 0; rest -= 8) {
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
        const int8_t *at = window;
        const int8_t *row = weights;
        int32x4_t even = vldrwq_s32(scale + {{ 0 if full else 8 }}), odd = vldrwq_s32(scale + {{ 4 if full else 12 }});
        {% if pixels == 2 %}
        int32x4_t next_even = even, next_odd = odd;
        {% endif %}
        for (int32_t rows = call->rows; rows > 0; --rows) {
            const int8_t *first = at;
            {% if pixels == 2 %}
            const int8_t *second = at + next;
            {% endif %}
            const int8_t *weight = row;
            for (int32_t columns = call->columns; columns > 0; --columns) {
                const int16x8_t eight = vldrbq_s16(weight);
                int16x8_t values = vldrbq_s16(first);
                {% if not full %}
                values = vsubq_n_s16(values, (int16_t)limits[3]);
                {% endif %}
                even = vaddq_s32(even, vmullbq_int_s16(values, eight));
                odd = vaddq_s32(odd, vmulltq_int_s16(values, eight));
                first += step;
                {% if pixels == 2 %}
                values = vldrbq_s16(second);
                {% if not full %}
                values = vsubq_n_s16(values, (int16_t)limits[3]);
                {% endif %}
                next_even = vaddq_s32(next_even, vmullbq_int_s16(values, eight));
                next_odd = vaddq_s32(next_odd, vmulltq_int_s16(values, eight));
                second += step;
                {% endif %}
                weight += channels;
            }
            at += line;
            row += width;
        }
        {{ name }}_store(output, even, odd, scale + 16, limits);
        {% if pixels == 2 %}
        {{ name }}_store(output + channels, next_even, next_odd, scale + 16, limits);
        {% else %}
        (void)next;
        {% endif %}
#else
        for (int32_t place = 0; place < {{ 8 * pixels }}; ++place) {
            const int32_t lane = place % 8;
            const int32_t word = lane / 2 + lane % 2 * 4;
            const int8_t *const from = window + place / 8 * next + lane;
            int32_t sum = scale[word + {{ 0 if full else 8 }}];
            for (int32_t tap = 0; tap < call->rows * call->columns; ++tap) {
                const int32_t row = tap / call->columns;
                const int32_t column = tap % call->columns;
                sum += (from[row * line + column * step]{{ " - limits[3]" if not full }}) * weights[row * width + column * channels + lane];
            }
            sum = requantize(sum, scale[16 + word], scale[24 + word]) + limits[0];
            output[place / 8 * channels + lane] =
                (int8_t)(sum < limits[1] ? limits[1] : sum > limits[2] ? limits[2] : sum);
        }
#endif
        window += 8;
        weights += 8;
        output += 8;
        scale += 32;
    }
}

{% endfor %}
{% endfor %}
/* Computes a row of a depthwise convolution's output, eight channels in a vector, from the image itself. weights:
 * [rows][columns][channels]. scales: 32 words for eight channels, as above. geometry: as
 * copy_window has it, then limits. */
static inline void {{ name }}(
    int8_t *output, const int8_t *image, const int32_t *geometry, const int8_t *weights, const int32_t *scales,
    int32_t row)
{
    const int32_t channels = geometry[2];
    const int32_t whole = geometry[1] * channels;
    const int32_t y = row * geometry[5] - geometry[9];
    struct vector_lanes call = {
        geometry + 13, 0, 0, geometry[7] * whole, geometry[8] * channels, geometry[6] * channels, channels,
        geometry[4] * channels};
    int32_t top = 0;
    int32_t bottom = geometry[3];
    for (; top < bottom && y + top * geometry[7] < 0; ++top) {
    }
    for (; bottom > top && y + (bottom - 1) * geometry[7] >= geometry[0]; --bottom) {
    }
    call.rows = bottom - top;
    for (int32_t column = 0; column < geometry[11];) {
        const int32_t x = column * geometry[6] - geometry[10];
        const int32_t last = x + (geometry[4] - 1) * geometry[8] + geometry[6];
        const bool two = x >= 0 && last < geometry[1] && column + 1 < geometry[11];
        int32_t left = 0;
        int32_t right = geometry[4];
        for (; left < right && x + left * geometry[8] < 0; ++left) {
        }
        for (; right > left && x + (right - 1) * geometry[8] >= geometry[1]; --right) {
        }
        call.columns = right - left;
        {
            const int8_t *const from = image + (y + top * geometry[7]) * whole + (x + left * geometry[8]) * channels;
            const int8_t *const weight = weights + top * call.width + left * channels;
            const bool full = call.rows == geometry[3] && call.columns == geometry[4];
            if (two) {
                (full ? {{ name }}_2_whole : {{ name }}_2_part)(output, from, weight, scales, &call);
            } else {
                (full ? {{ name }}_1_whole : {{ name }}_1_part)(output, from, weight, scales, &call);
            }
        }
        output += two ? 2 * channels : channels;
        column += two ? 2 : 1;
    }
}
