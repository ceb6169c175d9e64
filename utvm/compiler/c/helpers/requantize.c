/* Multiplies by multiplier / 2^31 * 2^shift and rounds twice: to 32 bits, and after the shift, each time to the
 * nearest, halves away from zero after the shift and up before it. This is gemmlowp's
 * SaturatingRoundingDoublingHighMul and RoundingDivideByPOT, as in TensorFlow Lite's reference kernels.
 * multiplier is not negative; value * 2^shift must fit 32 bits where shift is positive. */
static inline int32_t requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)value << left) * multiplier;
    const int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
    const int32_t half = right > 0 ? (int32_t)1 << (right - 1) : 0;
    return (int32_t)(((int64_t)high + half - ((right > 0 && high < 0) ? 1 : 0)) >> right);
}
