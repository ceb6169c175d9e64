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
        return {{ "0" if division.endswith("remainder") else "(%s)((%s)0 - (%s)a)" % (t, u, u) }};
    }
{% endif %}
{% if division.startswith("floor") %}
    return {{ {"floorquotient": "floordiv", "floorremainder": "floormod"}[division] }}_{{ type }}(a, b);
{% else %}
    return ({{ t }})(a {{ "%" if division == "remainder" else "/" }} b);
{% endif %}
}
