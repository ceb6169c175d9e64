{% set t, real_t = c_types[integer], c_types[real] %}
{% set unsigned, bits = integer.startswith("u"), integer.strip("uint")|int %}
{% set low = literal(0.0 if unsigned else -(2.0 ** (bits - 1)), real) %}
/* Rounds towards zero, to the nearest integer that there is; NaN gives 0. */
static inline {{ t }} {{ name }}({{ real_t }} a)
{
    if (a > {{ low }}) {
        return a < {{ literal(2.0 ** (bits if unsigned else bits - 1), real) }} ? ({{ t }})a : {{ integer|upper }}_MAX;
    }
    return {% if unsigned %}0{% else %}a <= {{ low }} ? {{ integer|upper }}_MIN : 0{% endif %};
}
