    if (condition[0]) {
        code = {{ first.name }}_run(inputs, outputs, workspace);
    } else {
        code = {{ second.name }}_run(inputs, outputs, workspace);
    }
