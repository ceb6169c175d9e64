# Completion of inv and utvm for zsh, by way of bash's.
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
{% include "completion.bash" %}
