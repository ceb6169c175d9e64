{% set t = c_types[type] %}
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
{% if type.startswith("int") %}
    const {{ t }} quotient = ({{ t }})(a / b);
    return ({{ t }})(a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);
{% else %}
    return ({{ t }})(a / b);
{% endif %}
}
