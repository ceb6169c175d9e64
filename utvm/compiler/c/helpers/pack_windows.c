/* Packs what two output pixels see of an image into every second word from columns; geometry as pack_window has it.
 * next: how far the second is behind the first, 1, or 0 where they are one. */
static inline void pack_windows(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t next)
{
    const int32_t line = geometry[1] * geometry[2];
    const int32_t taps = geometry[4];
    const int32_t step = geometry[6] * next;
    const int32_t y = row * geometry[5] - geometry[9];
    const int32_t x = column * geometry[6] - geometry[10];
    const bool dense = geometry[7] == 1 && geometry[8] == 1 && column + next < geometry[11];
    if (dense && y >= 0 && x >= 0 && y + geometry[3] <= geometry[0] && x + step + taps <= geometry[1]) {
        const int8_t *first = image + y * line + x * geometry[2];
        const int8_t *second = first + step * geometry[2];
        for (int32_t rows = geometry[3]; rows > 0; --rows) {
            columns = pack_pixels(columns, first, second, taps * geometry[2]);
            first += line;
            second += line;
        }
        return;
    }
    pack_window(columns, image, geometry, row, column, false);
    if (column + next == geometry[11]) {
        pack_window(columns, image, geometry, row + 1, 0, true);
    } else {
        pack_window(columns, image, geometry, row, column + next, true);
    }
}
