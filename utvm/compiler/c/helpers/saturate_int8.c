/* The int8 nearest to a value. */
static inline int32_t saturate_int8(int32_t value)
{
#if defined(__ARM_FEATURE_SAT)
    __asm__("ssat %0, #8, %1" : "=r"(value) : "r"(value));
    return value;
#else
    if ((uint32_t)value + 128u > 255u) {
        return value < 0 ? INT8_MIN : INT8_MAX;
    }
    return value;
#endif
}
