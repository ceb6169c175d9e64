{% set t = c_types[type] %}
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
    return a < b ? a : b;
}
