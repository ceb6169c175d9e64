# SPDX-License-Identifier: Apache-2.0
"""Many models in one program: one call of gcc and one process, which reads the inputs of all cases.

A case that ends the process is named, and the other cases continue.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from host_library import FLAGS

from utvm.base.process import run_tool
from utvm.compiler import Library
from utvm.errors import UtvmError

Array = npt.NDArray[Any]


class Case(Protocol):
    """A case to run.

    Attributes:
        sets: pairs of inputs and expected outputs.
    """

    name: str
    sets: list[tuple[list[Array], list[Array]]]


def make_program(
    batch: Sequence[Case], libraries: dict[str, Library], directory: Path, flags: Sequence[str] = ("-O0",)
) -> tuple[Path, dict[str, str]]:
    """Build the program of a batch; return it, and gcc's errors for rejected cases."""
    program = directory / "cases"
    (directory / "cases.c").write_text(_main(batch, libraries))
    for case in batch:
        for name, text in libraries[case.name].sources.items():
            (directory / name).write_text(text)
    try:
        run_tool(["gcc", *FLAGS, *flags, "-I", directory, "-o", program, directory / "cases.c", "-lm"])
    except UtvmError as error:
        if len(batch) == 1:
            return program, {batch[0].name: error.message}
        rejected = {}
        for case in batch:
            rejected |= make_program([case], libraries, directory, flags)[1]
        rest = [case for case in batch if case.name not in rejected]
        assert rejected, error.message
        return make_program(rest, libraries, directory, flags)[0], rejected
    return program, {}


def _main(batch: Sequence[Case], libraries: dict[str, Library]) -> str:
    rows, texts = [], []
    for case in batch:
        library = libraries[case.name]
        for file in sorted((name for name in library.sources if name.endswith(".c")), reverse=True):
            # Operators come first: libraries whose names differ in case only share one guard of their
            # headers.
            helpers = sorted(set(_static(library.sources[file])))
            texts += [f"#define {name} {file.removesuffix('.c')}_{name}" for name in helpers]
            texts += [f'#include "{file}"', *(f"#undef {name}" for name in [*helpers, "UTVM_STEP"])]
        sizes = [[tensor.size_bytes for tensor in tensors] for tensors in (library.inputs, library.outputs)]
        input_sizes, output_sizes = ("{" + ",".join(map(str, [*row, 0])) + "}" for row in sizes)
        rows.append(
            f"{{{case.name}_run, {library.arena_bytes}, {len(case.sets)}, {len(sizes[0])}, {len(sizes[1])}, "
            f"{input_sizes}, {output_sizes}}},"
        )
    return "\n".join([*texts, _MAIN.replace("ROWS", "\n".join(rows))])


def _static(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if line.startswith("static ") and line.endswith((")", "(")):
            name = line.split("(")[0].split()[-1].lstrip("*")
            if not name.startswith("__"):  # gcc's attribute before the name.
                yield name


_MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
    int32_t (*run)(const void *const *, void *const *, uint8_t *);
    size_t arena, sets, inputs, outputs;
    size_t input_sizes[64], output_sizes[64];
};

static const struct model models[] = {
ROWS
};

/* Memory with a pattern, because zeros could hide an error. */
static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) {
        exit(2);
    }
    memset(memory, 0xA5, bytes);
    return memory;
}

int main(int count, char **arguments)
{
    (void)count;
    for (size_t number = (size_t)atoi(arguments[1]); number < sizeof models / sizeof models[0]; ++number) {
        const struct model *model = &models[number];
        for (size_t set = 0; set < model->sets; ++set) {
            const void *inputs[64];
            void *outputs[64];
            for (size_t i = 0; i < model->inputs; ++i) {
                void *input = allocate(model->input_sizes[i]);
                if (fread(input, 1, model->input_sizes[i], stdin) != model->input_sizes[i]) {
                    return 3;
                }
                inputs[i] = input;
            }
            for (size_t i = 0; i < model->outputs; ++i) {
                outputs[i] = allocate(model->output_sizes[i]);
            }
            void *arena = allocate(model->arena);
            const int32_t code = model->run(inputs, outputs, arena);
            fwrite(&code, sizeof code, 1, stdout);
            for (size_t i = 0; i < model->outputs; ++i) {
                fwrite(outputs[i], 1, model->output_sizes[i], stdout);
            }
            fflush(stdout);
            free(arena);
            for (size_t i = 0; i < model->inputs; ++i) {
                free((void *)(uintptr_t)inputs[i]);
            }
            for (size_t i = 0; i < model->outputs; ++i) {
                free(outputs[i]);
            }
        }
    }
    return 0;
}
"""


def run_program(batch: Sequence[Case], libraries: dict[str, Library], program: Path) -> list[list[list[Array]] | str]:
    """Run the program; return the outputs of each set of each case, or an error message."""
    results: list[list[list[Array]] | str] = []
    while len(results) < len(batch):
        first = len(results)
        input_bytes = b"".join(encode_inputs(case, libraries[case.name]) for case in batch[first:])
        completed = subprocess.run(
            [program, str(first)],
            input=input_bytes,
            capture_output=True,
            check=False,
            timeout=600,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
        )
        rest = completed.stdout
        for case in batch[first:]:
            library = libraries[case.name]
            size = len(case.sets) * (4 + sum(tensor.size_bytes for tensor in library.outputs))
            if len(rest) < size:
                results.append(f"the process ended with {completed.returncode}{sanitizer_message(completed.stderr)}")
                break
            results.append(decode_outputs(rest[:size], library, len(case.sets)))
            rest = rest[size:]
    return results


def sanitizer_message(errors: bytes) -> str:
    """First line of a sanitizer's report."""
    lines = [
        line for line in errors.decode(errors="replace").splitlines() if "runtime error" in line or "ERROR" in line
    ]
    return f": {lines[0]}" if lines else ""


def encode_inputs(case: Case, library: Library) -> bytes:
    parts = []
    for inputs, _ in case.sets:
        for array, tensor in zip(inputs, library.inputs, strict=True):
            content = np.ascontiguousarray(array, tensor.dtype).tobytes()
            assert len(content) == tensor.size_bytes, (case.name, tensor.name)
            parts.append(content)
    return b"".join(parts)


def decode_outputs(content: bytes, library: Library, sets: int) -> list[list[Array]] | str:
    results = []
    for _ in range(sets):
        code, content = int.from_bytes(content[:4], "little", signed=True), content[4:]
        if code:
            return f"its run answers {code}"
        outputs = []
        for tensor in library.outputs:
            outputs.append(np.frombuffer(content[: tensor.size_bytes], tensor.dtype).reshape(tensor.shape))
            content = content[tensor.size_bytes :]
        results.append(outputs)
    return results
