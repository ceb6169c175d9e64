/* Writes the same value count times as one pixel's part of columns; see expand_columns. */
static inline int32_t *fill_columns(int32_t *columns, int32_t value, int32_t count)
{
    const int32_t both = (int32_t)((uint16_t)value * 0x10001u);
    for (; count > 0; count -= 4) {
        columns[0] = both;
        columns[4] = both;
        columns += 8;
    }
    return columns;
}
