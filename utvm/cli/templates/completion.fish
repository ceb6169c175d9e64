# Completion of inv and utvm for fish.
{% macro option(flag) %} -l {{ flag.name }}{% if flag.letter %} -s {{ flag.letter }}{% endif %}
{%- if flag.values %} -x -a '{{ flag.values }}'{% elif flag.takes_value %} -r{% endif %}
 -d {{ fish(flag.help) }}
{%- endmacro %}
complete -c utvm -w inv
{% for flag in core.flags %}
complete -c inv -n __fish_use_subcommand{{ option(flag) }}
{% endfor %}
{% for command in commands %}
complete -c inv -n __fish_use_subcommand -f -a {{ command.name }} -d {{ fish(command.help) }}
{% if command.values %}
complete -c inv -n '__fish_seen_subcommand_from {{ command.name }}' -f -a '{{ command.values }}'
{% endif %}
{% for flag in command.flags %}
complete -c inv -n '__fish_seen_subcommand_from {{ command.name }}'{{ option(flag) }}
{% endfor %}
{% endfor %}
