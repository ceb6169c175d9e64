/* scale_sum, also for shifts that go to the left, or by none: these are zero or below it. The shifted sum fits 31 bits. */
static inline int32_t scale_either(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift)
{
    if (shift > 0) {
        return scale_sum(sum, multiplier, offset, shift);
    }
    /* Nothing is rounded a second time: take back what scale_sum adds for that. */
    return scale_sum(sum * (1 << -shift), multiplier, -(sum >> 31), 0);
}
