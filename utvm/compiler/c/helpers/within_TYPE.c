{% set t = c_types[type] %}
/* Returns the index, or 0 for one that is out of range, and notes that. */
static inline {{ t }} {{ name }}({{ t }} index, {{ t }} extent, int32_t *outside)
{
    if ({{ "index < 0 || " if type.startswith("int") }}index >= extent) {
        *outside = 1;
        return 0;
    }
    return index;
}
