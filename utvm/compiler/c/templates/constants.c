{% for constant in constants %}
{% if loop.index0 in in_ram %}
/* Start-up code copies these to RAM, with the values of all variables. */
#if defined(__GNUC__) && defined(__ELF__)
__attribute__((section(".data.{{ constant.name }}")))
#endif
{% endif %}
static const {{ constant.c_type }} {{ constant.name }}[{{ constant.elements }}]{{ " __attribute__((aligned(%d)))" % alignment if includes }} = {
{{ constant.rows }}
};

{% endfor %}
