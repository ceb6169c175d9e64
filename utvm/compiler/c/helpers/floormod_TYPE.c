{% set t = c_types[type] %}
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
{% if type.startswith("int") %}
    const {{ t }} remainder = ({{ t }})(a % b);
    return ({{ t }})(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
{% else %}
    return ({{ t }})(a % b);
{% endif %}
}
