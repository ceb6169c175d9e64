/* What a kernel of vectors does: pairs of pixels, one pair after the other, each with all channels. All fields are
 * words, which the kernels in assembly read by their places.
 * first, second: what the two pixels of the first pair see, rounds runs of unrolled * 16 bytes; step: from the end of a
 * run to the next one; span: rounds times a run and a step; next: from one pair to the next. stream, end: for each tile
 * of channels their biases, for each 16 bytes of the window those of the channels' weights, then for each four of them
 * their multipliers and shifts, which are negative. output: the first pixel's; apart: from it to the second's;
 * output_next: to the next pair's. zero, low, high: of the output. mask: which of the last tile's eight results are
 * there, two bits each: those of the two pixels in turn. */
struct vector_tiles {
    const int8_t *first;
    const int8_t *second;
    int8_t *output;
    const int32_t *stream;
    const int32_t *end;
    int32_t pairs;
    int32_t step;
    int32_t next;
    int32_t output_next;
    int32_t apart;
    int32_t zero;
    int32_t low;
    int32_t high;
    int32_t mask;
    int32_t span;
};

/* The same in C, for two pixels and tiles of four channels, or one pixel (pairs is 1) and tiles of eight, of which the
 * even ones are first in the stream. */
static inline void vector_tiles(const struct vector_tiles *call, int32_t unrolled, int32_t rounds, int32_t pixels)
{
    const int32_t held = 8 / pixels;
    for (int32_t pair = 0; pair < call->pairs; ++pair) {
        int8_t *output = call->output + pair * call->output_next;
        const int32_t *stream = call->stream;
        while (stream != call->end) {
            uint32_t sums[8];
            for (int32_t each = 0; each < 8; ++each) {
                sums[each] = (uint32_t)stream[each % held];
            }
            stream += held;
            for (int32_t chunk = 0; chunk < rounds * unrolled; ++chunk) {
                const int32_t at = pair * call->next + 16 * chunk + chunk / unrolled * call->step;
                for (int32_t each = 0; each < 8; ++each) {
                    const int8_t *const values = (each < held ? call->first : call->second) + at;
                    const int8_t *const weights = (const int8_t *)(stream + 4 * (each % held));
                    for (int32_t k = 0; k < 16; ++k) {
                        sums[each] += (uint32_t)(values[k] * weights[k]);
                    }
                }
                stream += 4 * held;
            }
            for (int32_t lane = 0; lane < 8; ++lane) {
                const int32_t each = lane / 2 + 4 * (lane % 2);
                const int32_t *const scale = stream + 8 * (each % held / 4) + each % 4;
                const int32_t value = requantize((int32_t)sums[each], scale[0], scale[4]) + call->zero;
                const int32_t place = pixels == 1 ? lane : lane / 2 + lane % 2 * call->apart;
                if (stream + 2 * held != call->end || ((uint32_t)call->mask >> (2 * lane) & 1u) != 0u) {
                    output[place] = (int8_t)(value < call->low ? call->low : value > call->high ? call->high : value);
                }
            }
            stream += 2 * held;
            output += held;
        }
    }
}
