# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases, as they come with the package ``onnx``: which are in scope, and how many run at once.

A batch of cases becomes one program: one call of gcc, one process, which takes the inputs of case after case and
gives the outputs. A case that ends the process is named, and the others go on.
"""

import functools
import subprocess
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import yaml
from host_library import FLAGS
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from utvm.compiler import Library, from_onnx
from utvm.compiler.bounded import bounded
from utvm.errors import UtvmError
from utvm.process import run

Array = npt.NDArray[Any]

KINDS = ("node", "pytorch-converted", "pytorch-operator")
_SCOPE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "onnx_suite.yaml").read_text(encoding="utf-8"))


@dataclass
class Case:
    """One model, what it is given, and what it should answer.

    Attributes:
        sets: pairs of inputs and answers.
    """

    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Array], list[Array]]]
    rtol: float
    atol: float


@dataclass
class Outcome:
    """What became of a case: ``right``, ``wrong`` or ``refused``, and the words about it."""

    case: str
    verdict: str
    text: str = ""


@functools.cache
def cases() -> dict[str, Case]:
    """Return the cases in scope, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some of ONNX's own answers are computed with an overflow.
        loaded = [each for kind in KINDS for each in load_model_tests(kind=kind)]
    return {each.name: _case(each) for each in sorted(loaded, key=lambda each: each.name) if _in_scope(each)}


def _in_scope(loaded: Any) -> bool:
    model = _model(loaded)
    if loaded.name.endswith("_expanded") or "_expanded_" in loaded.name:
        return False
    if any(node.domain not in ("", "ai.onnx") or node.op_type in _SCOPE["operators"] for node in model.graph.node):
        return False
    kinds = [
        value.type.tensor_type.elem_type if value.type.WhichOneof("value") == "tensor_type" else 0
        for value in [*model.graph.input, *model.graph.output]
    ]
    return all(onnx.TensorProto.DataType.Name(kind) in _SCOPE["types"] for kind in kinds)


@functools.cache
def _stored(directory: str) -> onnx.ModelProto:
    return onnx.load(Path(directory) / "model.onnx")


def _model(loaded: Any) -> onnx.ModelProto:
    return loaded.model or _stored(loaded.model_dir)


def _case(loaded: Any) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(_model(loaded))
    sets = loaded.data_sets or [_read(folder) for folder in sorted(Path(loaded.model_dir).glob("test_data_set*"))]
    sets = [(_arrays(given), _arrays(wanted)) for given, wanted in sets]
    constant = {
        node.input[number]
        for node in model.graph.node
        for number in _SCOPE["constant_inputs"].get(node.op_type, ())
        if number < len(node.input)
    }
    names = [value.name for value in model.graph.input]
    if len(sets) == 1 and constant & set(names):
        given = dict(zip(names, sets[0][0], strict=False))
        model.graph.initializer.extend(
            numpy_helper.from_array(given[name], name) for name in names if name in constant
        )
        kept = [value for value in model.graph.input if value.name not in constant]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        sets = [([given[value.name] for value in kept], sets[0][1])]
    return Case(loaded.name, model, sets, loaded.rtol, _SCOPE["atol"].get(loaded.name, loaded.atol))


def _arrays(values: Sequence[Any]) -> list[Array]:
    return [
        numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else np.asarray(each) for each in values
    ]


def _read(folder: Path) -> tuple[list[Array], list[Array]]:
    def arrays(kind: str) -> list[Array]:
        files = [folder / f"{kind}_{number}.pb" for number in range(len(list(folder.glob(f"{kind}_*.pb"))))]
        return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    return arrays("input"), arrays("output")


def judge(batch: Sequence[Case], directory: Path) -> dict[str, Outcome]:
    """Compile and run cases.

    Returns:
        Case name to what became of it.
    """
    outcomes, libraries = {}, {}
    for case, answer in zip(batch, _compiled(batch), strict=True):
        if isinstance(answer, Library):
            libraries[case.name] = answer
        else:
            outcomes[case.name] = Outcome(case.name, "refused", answer)
    able = [case for case in batch if case.name in libraries]
    program, refused = _program(able, libraries, directory)
    outcomes |= {name: Outcome(name, "refused", f"gcc: {text}") for name, text in refused.items()}
    able = [case for case in able if case.name not in refused]
    for case, answers in zip(able, _answers(able, libraries, program), strict=True):
        text = _difference(case, answers)
        outcomes[case.name] = Outcome(case.name, "wrong" if text else "right", text)
    return outcomes


def _compiled(batch: Sequence[Case]) -> list[Library | str]:
    from utvm.compiler.build import build_library

    def each(case: Case) -> Library | str:
        try:
            model = from_onnx(case.model.SerializeToString(), case.name)
            return build_library(model, case.name)
        except UtvmError as error:
            return str(error)

    # One process for all: that costs less than one for each, and what crashes TVM crashes only that.
    return bounded("ONNX's cases", "compile them", lambda: [each(case) for case in batch])


def _program(batch: Sequence[Case], libraries: dict[str, Library], directory: Path) -> tuple[Path, dict[str, str]]:
    """Make the program of a batch; return it, and what gcc says of cases that it does not take."""
    program = directory / "cases"
    (directory / "cases.c").write_text(_main(batch, libraries))
    for case in batch:
        for name, text in libraries[case.name].sources.items():
            (directory / name).write_text(text)
    try:
        run(["gcc", *FLAGS, "-O0", "-I", directory, "-o", program, directory / "cases.c", "-lm"])
    except UtvmError as error:
        if len(batch) == 1:
            return program, {batch[0].name: error.message}
        bad = {}
        for case in batch:
            bad |= _program([case], libraries, directory)[1]
        rest = [case for case in batch if case.name not in bad]
        assert bad, error.message
        return _program(rest, libraries, directory)[0], bad
    return program, {}


def _main(batch: Sequence[Case], libraries: dict[str, Library]) -> str:
    rows, texts = [], []
    for case in batch:
        library = libraries[case.name]
        files = [f"{case.name}_operators.c", f"{case.name}.c"]
        # Each library has its helpers, by the same names.
        helpers = sorted({name for file in files for name in _static(library.sources.get(file, ""))})
        texts += [f"#define {name} {case.name}_{name}" for name in helpers]
        texts += [f'#include "{file}"' for file in files if file in library.sources]
        texts += [f"#undef {name}" for name in [*helpers, "UTVM_STEP"]]
        sizes = [[tensor.size_bytes for tensor in tensors] for tensors in (library.inputs, library.outputs)]
        given, wanted = ("{" + ",".join(map(str, [*each, 0])) + "}" for each in sizes)
        rows.append(
            f"{{{case.name}_run, {library.arena_bytes}, {len(case.sets)}, {len(sizes[0])}, {len(sizes[1])}, "
            f"{given}, {wanted}}},"
        )
    return "\n".join([*texts, _MAIN.replace("ROWS", "\n".join(rows))])


def _static(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if line.startswith("static ") and line.endswith(")"):
            yield line.split("(")[0].split()[-1].lstrip("*")


_MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct each {
    int32_t (*run)(const void *const *, void *const *, uint8_t *);
    size_t arena, sets, inputs, outputs;
    size_t given[64], wanted[64];
};

static const struct each all[] = {
ROWS
};

/* Fills what is handed out, so that nothing is right only because it was zero. */
static void *room(size_t bytes)
{
    void *memory = malloc(bytes + 16u);
    if (!memory) {
        exit(2);
    }
    memset(memory, 0xA5, bytes + 16u);
    return memory;
}

int main(int count, char **words)
{
    (void)count;
    for (size_t number = (size_t)atoi(words[1]); number < sizeof all / sizeof all[0]; ++number) {
        const struct each *one = &all[number];
        for (size_t set = 0; set < one->sets; ++set) {
            const void *inputs[64];
            void *outputs[64];
            for (size_t i = 0; i < one->inputs; ++i) {
                void *input = room(one->given[i]);
                if (fread(input, 1, one->given[i], stdin) != one->given[i]) {
                    return 3;
                }
                inputs[i] = input;
            }
            for (size_t i = 0; i < one->outputs; ++i) {
                outputs[i] = room(one->wanted[i]);
            }
            const int32_t code = one->run(inputs, outputs, room(one->arena));
            fwrite(&code, sizeof code, 1, stdout);
            for (size_t i = 0; i < one->outputs; ++i) {
                fwrite(outputs[i], 1, one->wanted[i], stdout);
            }
            fflush(stdout);
        }
    }
    return 0;
}
"""


def _answers(batch: Sequence[Case], libraries: dict[str, Library], program: Path) -> list[list[list[Array]] | str]:
    """Run the program; return for each case the outputs of each set, or what went wrong."""
    answers: list[list[list[Array]] | str] = []
    while len(answers) < len(batch):
        first = len(answers)
        given = b"".join(_given(case, libraries[case.name]) for case in batch[first:])
        done = subprocess.run([program, str(first)], input=given, capture_output=True, check=False, timeout=120)
        rest = done.stdout
        for case in batch[first:]:
            library = libraries[case.name]
            size = len(case.sets) * (4 + sum(tensor.size_bytes for tensor in library.outputs))
            if len(rest) < size:
                answers.append(f"the process ended with {done.returncode}")
                break
            answers.append(_parsed(rest[:size], library, len(case.sets)))
            rest = rest[size:]
    return answers


def _given(case: Case, library: Library) -> bytes:
    parts = []
    for inputs, _ in case.sets:
        for array, tensor in zip(inputs, library.inputs, strict=True):
            content = np.ascontiguousarray(array, tensor.dtype).tobytes()
            assert len(content) == tensor.size_bytes, (case.name, tensor.name)
            parts.append(content)
    return b"".join(parts)


def _parsed(content: bytes, library: Library, sets: int) -> list[list[Array]] | str:
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


def _difference(case: Case, answers: list[list[Array]] | str) -> str:
    """Return how answers differ from the case's own, by ONNX's own comparison; empty where they do not."""
    if isinstance(answers, str):
        return answers
    for (_, wanted), outputs in zip(case.sets, answers, strict=True):
        try:
            Runner.assert_similar_outputs(wanted, outputs, case.rtol, case.atol)
        except Exception as error:  # numpy's AssertionError, or what it stumbles over
            return " ".join(str(error).split())[:200]
    return ""


def page(refused: Mapping[str, Sequence[str]]) -> str:
    """Write what is supported of ONNX, by the cases that are right and those that are refused."""
    reasons = {name: reason for reason, names in refused.items() for name in names}
    operators: dict[str, list[Case]] = {}
    for case in cases().values():
        if len(case.model.graph.node) == 1:
            operators.setdefault(case.model.graph.node[0].op_type, []).append(case)
    rows = []
    for operator, tried in sorted(operators.items()):
        right = [case for case in tried if case.name not in reasons]
        kinds = {str(array.dtype) for case in right for array in [*case.sets[0][0], *case.sets[0][1]]}
        versions = {case.model.opset_import[0].version for case in right}
        span = f"{min(versions)}-{max(versions)}" if len(versions) > 1 else "".join(map(str, versions))
        said = "; ".join(sorted({reasons[case.name] for case in tried if case.name in reasons}))
        rows.append(
            f"| {operator} | {len(right)} of {len(tried)} | {span} | {', '.join(sorted(kinds))} | {said} |"
        )
    total, left = len(cases()), len(reasons)
    return _PAGE.format(total=total, right=total - left, left=left, rows="\n".join(rows))


_PAGE = """# Operators

Made from what the tests find; do not edit.

## ONNX
{total} of the backend cases that come with the package `onnx` are in scope, {right} are right, {left} are refused
for the reasons in the last column, and none is wrong. The tests hold every case to that. Versions (of the operator
set) and element types are those of the cases that are right; others mostly work, too. Shapes, axes, counts, and
scales of quantisation must be constant: [compiler.md](compiler.md).

| operator | right | versions | element types | refused |
|---|---|---|---|---|
{rows}

ONNX Runtime's own operators (com.microsoft): QLinearAdd, QLinearAveragePool, QLinearConcat,
QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearMul, QLinearSigmoid, QLinearSoftmax.
"""

if __name__ == "__main__":
    folder = Path(__file__).parent
    listed = yaml.safe_load((folder / "onnx_refused.yaml").read_text(encoding="utf-8"))
    (folder.parents[1] / "docs" / "operators.md").write_text(page(listed), encoding="utf-8")
