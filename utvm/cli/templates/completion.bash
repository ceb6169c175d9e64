# Completion of inv and utvm for bash; zsh reads it, too.
_utvm() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= front= words= word
    # bash takes --board=NAME for three words, zsh for one.
    [ "$current" != = ] || current=
    [ "$before" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}
    case $current in --*=*) before=${current%%=*} front=$before= current=${current#*=} ;; esac
    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
        case $word in
        {{ commands | map(attribute="name") | join(" | ") }}) command=$word; break ;;
        esac
    done
    COMPREPLY=()
    case $before in
{% for name, of in values.items() %}
    --{{ name }}) words="{{ of }}" ;;
{% endfor %}
    -b) words="{{ values["board"] }}" ;;
    -h | --help) words="{{ commands | map(attribute="name") | join(" ") }}" ;;
    *)
        case $command:$current in
        :-*) words="{{ core.spelled }}" ;;
        :*) words="{{ commands | map(attribute="name") | join(" ") }}" ;;
{% for command in commands %}
        {{ command.name }}:-*) words="{{ command.spelled }} --help" ;;
{% if command.values %}
        {{ command.name }}:*) words="{{ command.values }}" ;;
{% endif %}
{% endfor %}
        esac ;;
    esac
    for word in $(compgen -W "$words" -- "$current"); do COMPREPLY+=("$front$word"); done
}
# Where nothing is known, files are offered.
complete -o default -F _utvm inv utvm
