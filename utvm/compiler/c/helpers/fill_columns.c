/* Writes the same value count times as one pixel's part of columns; see expand_columns. */
static inline int16_t *fill_columns(int16_t *columns, int32_t value, int32_t count)
{
    for (; count > 0; count -= 4) {
        columns[0] = (int16_t)value;
        columns[1] = (int16_t)value;
        columns[8] = (int16_t)value;
        columns[9] = (int16_t)value;
        columns += 16;
    }
    return columns;
}
