/* The best boxes that do not overlap much (detection_postprocess.cc of TensorFlow Lite Micro). reals holds the least
 * score, the largest overlap, and the scales of y, x, height and width. With variants, each chosen box has the scores of
 * its best classes; with 0, boxes are chosen for one class after the other, at most share for each. Boxes that are
 * empty, which that kernel ends with an error, give no result. */
static inline void detect_boxes(
    float *corners, float *classes, float *scores, float *found, float *box, float *best, bool *open,
    const float *encoded, const float *given, const float *anchors, const float *reals, int32_t count, int32_t pitch,
    int32_t columns, int32_t labels, int32_t most, int32_t room, int32_t variants, int32_t share)
{
    const int32_t first = columns - labels;
    bool valid = true;
    for (int32_t at = 0; at < room; ++at) {
        classes[at] = scores[at] = 0.0f;
        corners[4 * at] = corners[4 * at + 1] = corners[4 * at + 2] = corners[4 * at + 3] = 0.0f;
    }
    for (int32_t at = 0; at < count; ++at) {
        for (int32_t axis = 0; axis < 2; ++axis) {
            const double place = (double)encoded[at * pitch + axis];
            const double size = (double)encoded[at * pitch + 2 + axis];
            const double anchor = (double)anchors[4 * at + 2 + axis];
            const float middle = (float)(place / (double)reals[2 + axis] * anchor + (double)anchors[4 * at + axis]);
            const float half = (float)(0.5 * exp(size / (double)reals[4 + axis]) * anchor);
            box[4 * at + axis] = middle - half;
            box[4 * at + 2 + axis] = middle + half;
            valid = valid && !(middle - half >= middle + half);
        }
    }
    int32_t total = 0;
    const int32_t rounds = variants > 0 ? 1 : labels;
    for (int32_t label = 0; label < rounds && valid; ++label) {
        for (int32_t at = 0; at < count; ++at) {
            best[at] = given[at * columns + first + label];
            for (int32_t other = 1; variants > 0 && other < labels; ++other) {
                const float score = given[at * columns + first + other];
                best[at] = best[at] < score ? score : best[at];
            }
            open[at] = best[at] >= reals[0];
        }
        for (int32_t turn = 0; turn < (variants > 0 ? most : share); ++turn) {
            int32_t chosen = -1;
            for (int32_t at = 0; at < count; ++at) {
                chosen = open[at] && (chosen < 0 || best[at] > best[chosen]) ? at : chosen;
            }
            if (chosen < 0) {
                break;
            }
            open[chosen] = false;
            for (int32_t at = 0; at < count; ++at) {
                open[at] = open[at] && !(detect_overlap(box + 4 * chosen, box + 4 * at) > reals[1]);
            }
            if (variants > 0) {
                total = detect_variants(
                    corners, classes, scores, box + 4 * chosen, given + chosen * columns + first, labels, room,
                    variants, total);
            } else {
                total = detect_insert(corners, classes, scores, box + 4 * chosen, best[chosen], label, most, total);
            }
        }
    }
    found[0] = (float)total;
}
