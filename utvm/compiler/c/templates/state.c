{% for state in states %}
static {{ state.c_type }} {{ state.name }}[{{ state.elements }}];
{% if state.byte is none %}
static const {{ state.c_type }} {{ state.name }}_initial[{{ state.elements }}] = {
{{ state.rows }}
};
{% endif %}
{% endfor %}
{% if states %}
static bool {{ name }}_begun = false;

void {{ name }}_reset(void)
{
{% for state in states %}
{% if state.byte is none %}
    (void)memcpy({{ state.name }}, {{ state.name }}_initial, sizeof {{ state.name }});
{% else %}
    (void)memset({{ state.name }}, {{ state.byte }}, sizeof {{ state.name }});
{% endif %}
{% endfor %}
    {{ name }}_begun = true;
}

{% endif %}
