/* Adds a box with its best classes; returns the number of results. Results of several classes leave gaps, as
 * TensorFlow Lite Micro's do; results past the end are dropped. */
static inline int32_t detect_variants(
    float *corners, float *classes, float *scores, const float *box, const float *given, int32_t labels, int32_t room,
    int32_t variants, int32_t total)
{
    int32_t last = -1;
    for (int32_t rank = 0; rank < variants; ++rank) {
        int32_t next = -1;
        for (int32_t label = 0; label < labels; ++label) {
            const bool later =
                last < 0 || given[label] < given[last] || (label > last && !(given[label] > given[last]));
            next = later && (next < 0 || given[label] > given[next]) ? label : next;
        }
        last = next < 0 ? last : next;
        const int32_t at = variants * (total + rank) + rank;
        if (at < room) {
            scores[at] = given[last];
            classes[at] = (float)last;
            for (int32_t side = 0; side < 4; ++side) {
                corners[4 * at + side] = box[side];
            }
        }
    }
    return total + variants;
}
