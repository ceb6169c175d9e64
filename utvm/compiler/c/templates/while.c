{% for to, begin, _, size in copies %}
    (void)memcpy({{ to }}, {{ begin }}, {{ size }});
{% endfor %}
    code = {{ first.name }}_run(inputs, conditions, workspace);
    while ((code == 0) && *(const bool *)(workspace + {{ place }})) {
        code = {{ second.name }}_run(inputs, next, workspace);
{% for to, _, after, size in copies %}
        (void)memcpy({{ to }}, {{ after }}, {{ size }});
{% endfor %}
        if (code == 0) {
            code = {{ first.name }}_run(inputs, conditions, workspace);
        }
    }
