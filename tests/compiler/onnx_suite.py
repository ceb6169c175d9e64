# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases, as they come with the package ``onnx``: which are in scope, and how many run at once.

A batch of cases becomes one program: one call of gcc, one process, which takes the inputs of case after case and
gives the outputs. A case that ends the process is named, and the others go on.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import yaml
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from programs import answers_of, make_program

from utvm.compiler import Library, from_onnx
from utvm.compiler.bounded import run_bounded
from utvm.errors import UtvmError

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
        model.graph.initializer.extend(numpy_helper.from_array(given[name], name) for name in names if name in constant)
        kept = [value for value in model.graph.input if value.name not in constant]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        sets = [([given[value.name] for value in kept], sets[0][1])]
    return Case(loaded.name, model, sets, loaded.rtol, _SCOPE["atol"].get(loaded.name, loaded.atol))


def _arrays(values: Sequence[Any]) -> list[Array]:
    return [numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else np.asarray(each) for each in values]


def _read(folder: Path) -> tuple[list[Array], list[Array]]:
    def arrays(kind: str) -> list[Array]:
        files = [folder / f"{kind}_{number}.pb" for number in range(len(list(folder.glob(f"{kind}_*.pb"))))]
        return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    return arrays("input"), arrays("output")


def judge(batch: Sequence[Any], directory: Path, differ: Callable[[Any, Any], str] | None = None) -> dict[str, Outcome]:
    """Compile and run cases.

    Args:
        batch: cases, or what has the same attributes.
        differ: says how answers differ from a case's own; by ONNX's own comparison, unless somebody else does.

    Returns:
        Case name to what became of it.
    """
    outcomes, libraries = {}, {}
    for case, answer in zip(batch, compiled(batch), strict=True):
        if isinstance(answer, Library):
            libraries[case.name] = answer
        else:
            outcomes[case.name] = Outcome(case.name, "refused", answer)
    able = [case for case in batch if case.name in libraries]
    program, refused = make_program(able, libraries, directory)
    outcomes |= {name: Outcome(name, "refused", f"gcc: {text}") for name, text in refused.items()}
    able = [case for case in able if case.name not in refused]
    for case, answers in zip(able, answers_of(able, libraries, program), strict=True):
        text = (differ or difference)(case, answers)
        outcomes[case.name] = Outcome(case.name, "wrong" if text else "right", text)
    return outcomes


def compiled(batch: Sequence[Case]) -> list[Library | str]:
    """Return a library of each case, or why there is none."""
    from utvm.compiler.build import build_library

    def each(case: Case) -> Library | str:
        try:
            model = from_onnx(case.model.SerializeToString(), case.name)
            return build_library(model, case.name)
        except UtvmError as error:
            return str(error)

    # One process for all: that costs less than one for each, and what crashes TVM crashes only that.
    return run_bounded("ONNX's cases", "compile them", lambda: [each(case) for case in batch])


def difference(case: Case, answers: list[list[Array]] | str) -> str:
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
        rows.append(f"| {operator} | {len(right)} of {len(tried)} | {span} | {', '.join(sorted(kinds))} | {said} |")
    total, left = len(cases()), len(reasons)
    return _PAGE.format(total=total, right=total - left, left=left, rows="\n".join(rows))


_PAGE = """# Operators

Generated from the test results by `python tests/compiler/operators_page.py`: do not edit.

## ONNX
{total} of the backend cases that come with the package `onnx` are in scope, {right} are right, {left} are refused
for the reasons in the last column, and none is wrong. Tests check every case. Versions (of the operator
set) and element types are those of the correct cases; most others work, too. Shapes, axes, counts, and
scales of quantisation must be constant: [compiler.md](compiler.md).

| operator | correct | versions | element types | refused |
|---|---|---|---|---|
{rows}

ONNX Runtime's own operators (com.microsoft): QGemm, QLinearAdd, QLinearAveragePool,
QLinearConcat, QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearMul, QLinearSigmoid, QLinearSoftmax.
"""
