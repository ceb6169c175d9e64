{% set t = c_types[type] %}
/* Division by zero gives 0, and overflow wraps around. */
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
    if (b == 0) {
        return 0;
    }
{% if type.startswith("int") %}
    if (b == -1) {
        return 0;
    }
{% endif %}
    return ({{ t }})(a % b);
}
