{% set t = c_types[type] %}
{% set u = wrapping(type) %}{# Overflow wraps around, as in numpy; it is undefined for signed numbers in C. #}
static inline {{ t }} {{ name }}({{ t }} a, {{ t }} b)
{
    return ({{ t }})(({{ u }})a << b);
}
