/* Puts a box among the best ones of all classes, behind boxes of the same score; returns the number of boxes. */
static inline int32_t detect_insert(
    float *corners, float *classes, float *scores, const float *box, float score, int32_t label, int32_t most,
    int32_t total)
{
    int32_t place = total;
    for (; place > 0 && scores[place - 1] < score; --place) {
    }
    if (place >= most) {
        return total;
    }
    const int32_t after = total < most ? total + 1 : most;
    for (int32_t at = after - 1; at >= place; --at) {
        const int32_t source = at - 1;
        scores[at] = at == place ? score : scores[source];
        classes[at] = at == place ? (float)label : classes[source];
        for (int32_t side = 0; side < 4; ++side) {
            corners[4 * at + side] = at == place ? box[side] : corners[4 * source + side];
        }
    }
    return after;
}
