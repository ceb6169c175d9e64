{% import "dsp.j2" as dsp %}
/* Scales half of an even number, as scale_sum does, and limits it. */
static inline int32_t {{ name }}(int32_t twice, int32_t factor, int32_t offset, int32_t shift)
{
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__)
    {% if rounded %}
    /* A product is below zero if its sum is, or it is zero, which the offset rounds up again. */
    offset += twice >> 31;
    {% endif %}
    __asm__(
{% filter instructions %}
        {{ dsp.scale("%0", "%1", "%2", 0, limit, "%3") }}
{% endfilter %}
        : "+&r"(twice)
        : "r"(factor), "r"(offset), "r"(shift)
        : "cc");
    return twice;
#else
    const int32_t value = scale_sum(twice / 2, factor, offset, shift);
    return value < {{ -128 if limit == 8 else 0 }} ? {{ -128 if limit == 8 else 0 }} : value > 127 ? 127 : value;
#endif
}
