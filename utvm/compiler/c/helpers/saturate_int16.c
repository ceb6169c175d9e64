/* The nearest int16 value. */
static inline int32_t saturate_int16(int32_t value)
{
#if defined(__ARM_FEATURE_SAT)
    int32_t result;
    __asm__("ssat %0, #16, %1" : "=r"(result) : "r"(value));
    return result;
#else
    return value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
#endif
}
