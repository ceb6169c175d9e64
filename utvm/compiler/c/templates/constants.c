{% if constants %}
/* Cores with a bus of 64 bits load two words at once where they begin at a multiple of eight bytes. */
#if defined(__GNUC__)
#define ALIGNED_CONSTANT __attribute__((aligned({{ alignment if includes else 8 }})))
#else
#define ALIGNED_CONSTANT
#endif

{% endif %}
{% for constant in constants %}
{% if loop.index0 in in_ram %}
/* Start-up code copies these to RAM, with the values of all variables. */
#if defined(__GNUC__) && defined(__ELF__)
__attribute__((section(".data.{{ constant.name }}")))
#endif
{% endif %}
static const {{ constant.c_type }} {{ constant.name }}[{{ constant.elements }}] ALIGNED_CONSTANT = {
{{ constant.rows }}
};

{% endfor %}
