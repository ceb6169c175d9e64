{% set t = c_types[type] %}
{% set u = wrapping(type) %}
/* Division by zero gives 0, and overflow wraps around. */
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
    if (b == 0) {
        return 0;
    }
{% if type.startswith("int") %}
    if (b == -1) {
        return ({{ t }})(({{ u }})0 - ({{ u }})a);
    }
{% endif %}
    return floordiv_{{ type }}(a, b);
}
