/* One of two channels' weights in a halfword. form: 0, a byte for each; 1, the first plus 256 times the second; 2, one
 * of 16 bits. */
static inline int32_t {{ name }}(uint32_t half, int32_t which, int32_t form)
{
    const int32_t first = (int8_t)(half & 255u);
    const int32_t second = (int8_t)(half >> 8);
    if (form == 2) {
        return (int16_t)half;
    }
    if (which == 0) {
        return first;
    }
    return form == 1 && first < 0 ? second + 1 : second;
}
