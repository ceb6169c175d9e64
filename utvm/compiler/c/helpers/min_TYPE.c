{% set t = c_types[type] %}
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
{% if type.startswith("float") %}{# A NaN as first operand is kept: activations pass their constant bounds second. #}
    return a >= b ? b : a;
{% else %}
    return a < b ? a : b;
{% endif %}
}
