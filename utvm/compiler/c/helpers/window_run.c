/* How many of a filter row's next taps, the first at x, lie side by side inside a line, or all outside it. */
static inline int32_t window_run(int32_t x, int32_t width, int32_t taps, int32_t dilation)
{
    int32_t run = x < 0 ? -x : x < width ? width - x : taps;
    if (dilation != 1) {
        run = 1;
    }
    return run < taps ? run : taps;
}
