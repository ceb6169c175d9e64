/* The int8 nearest to a value. */
static inline int32_t saturate_int8(int32_t value)
{
#if defined(__ARM_FEATURE_SAT)
    __asm__("ssat %0, #8, %1" : "=r"(value) : "r"(value));
    return value;
#else
    return value < INT8_MIN ? INT8_MIN : value > INT8_MAX ? INT8_MAX : value;
#endif
}
