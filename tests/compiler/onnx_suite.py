# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases from the package ``onnx``: their scope, and batches of them in one program.

A batch of cases is one program: one call of gcc and one process, which reads the inputs of all cases and writes the
outputs. A case that ends the process is named, and the other cases continue.
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
from programs import make_program, run_program

from utvm.compiler import Library, from_onnx
from utvm.compiler.bounded import run_bounded
from utvm.errors import UtvmError

Array = npt.NDArray[Any]

KINDS = ("node", "pytorch-converted", "pytorch-operator")
_SCOPE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "onnx_suite.yaml").read_text(encoding="utf-8"))


@dataclass
class Case:
    """A model with inputs and expected outputs.

    Attributes:
        sets: pairs of inputs and outputs.
    """

    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Array], list[Array]]]
    rtol: float
    atol: float


@dataclass
class Outcome:
    """Outcome of a case: ``right``, ``wrong`` or ``refused``, with a message."""

    case: str
    verdict: str
    text: str = ""


@functools.cache
def cases() -> dict[str, Case]:
    """Cases in scope, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some of ONNX's own outputs are computed with an overflow.
        loaded = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: _case(case) for case in sorted(loaded, key=lambda case: case.name) if _in_scope(case)}


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
    sets = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in sets]
    constants = {
        node.input[number]
        for node in model.graph.node
        for number in _SCOPE["constant_inputs"].get(node.op_type, ())
        if number < len(node.input)
    }
    names = [value.name for value in model.graph.input]
    if len(sets) == 1 and constants & set(names):
        input_values = dict(zip(names, sets[0][0], strict=False))
        model.graph.initializer.extend(
            numpy_helper.from_array(input_values[name], name) for name in names if name in constants
        )
        remaining = [value for value in model.graph.input if value.name not in constants]
        del model.graph.input[:]
        model.graph.input.extend(remaining)
        sets = [([input_values[value.name] for value in remaining], sets[0][1])]
    return Case(loaded.name, model, sets, loaded.rtol, _SCOPE["atol"].get(loaded.name, loaded.atol))


def _arrays(values: Sequence[Any]) -> list[Array]:
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value) for value in values
    ]


def _read(folder: Path) -> tuple[list[Array], list[Array]]:
    def arrays(kind: str) -> list[Array]:
        files = [folder / f"{kind}_{number}.pb" for number in range(len(list(folder.glob(f"{kind}_*.pb"))))]
        return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    return arrays("input"), arrays("output")


def judge(batch: Sequence[Any], directory: Path, differ: Callable[[Any, Any], str] | None = None) -> dict[str, Outcome]:
    """Compile and run cases.

    Args:
        batch: cases, or objects with the same attributes.
        differ: describes how outputs differ from a case's own; by default, ONNX's own comparison.

    Returns:
        Outcomes by case name.
    """
    outcomes, libraries = {}, {}
    for case, result in zip(batch, compile_cases(batch), strict=True):
        if isinstance(result, Library):
            libraries[case.name] = result
        else:
            outcomes[case.name] = Outcome(case.name, "refused", result)
    runnable = [case for case in batch if case.name in libraries]
    program, refused = make_program(runnable, libraries, directory)
    outcomes |= {name: Outcome(name, "refused", f"gcc: {text}") for name, text in refused.items()}
    runnable = [case for case in runnable if case.name not in refused]
    for case, outputs in zip(runnable, run_program(runnable, libraries, program), strict=True):
        text = (differ or difference)(case, outputs)
        outcomes[case.name] = Outcome(case.name, "wrong" if text else "right", text)
    return outcomes


def compile_cases(batch: Sequence[Case]) -> list[Library | str]:
    """Library of each case, or the reason for a refusal."""
    from utvm.compiler.build import build_library

    def compile_case(case: Case) -> Library | str:
        try:
            model = from_onnx(case.model.SerializeToString(), case.name)
            return build_library(model, case.name)
        except UtvmError as error:
            return str(error)

    # One process for all is cheaper than one each, and contains a crash of TVM.
    return run_bounded("ONNX's cases", "compile them", lambda: [compile_case(case) for case in batch])


def difference(case: Case, outputs_of_sets: list[list[Array]] | str) -> str:
    """Difference between outputs and the case's own, by ONNX's comparison; empty if they agree."""
    if isinstance(outputs_of_sets, str):
        return outputs_of_sets
    for (_, expected), outputs in zip(case.sets, outputs_of_sets, strict=True):
        try:
            Runner.assert_similar_outputs(expected, outputs, case.rtol, case.atol)
        except Exception as error:  # numpy's AssertionError, or an error of the comparison
            return " ".join(str(error).split())[:200]
    return ""


def page(refused: Mapping[str, Sequence[str]]) -> str:
    """Page of supported ONNX operators, from the correct and the refused cases."""
    reasons = {name: reason for reason, names in refused.items() for name in names}
    operators: dict[str, list[Case]] = {}
    for case in cases().values():
        if len(case.model.graph.node) == 1:
            operators.setdefault(case.model.graph.node[0].op_type, []).append(case)
    rows = []
    for operator, tests in sorted(operators.items()):
        correct = [case for case in tests if case.name not in reasons]
        kinds = {str(array.dtype) for case in correct for array in [*case.sets[0][0], *case.sets[0][1]]}
        versions = {case.model.opset_import[0].version for case in correct}
        span = f"{min(versions)}-{max(versions)}" if len(versions) > 1 else "".join(map(str, versions))
        refusals = "; ".join(sorted({reasons[case.name] for case in tests if case.name in reasons}))
        rows.append(
            f"| {operator} | {len(correct)} of {len(tests)} | {span} | {', '.join(sorted(kinds))} | {refusals} |"
        )
    total, refused_count = len(cases()), len(reasons)
    return _PAGE.format(total=total, right=total - refused_count, left=refused_count, rows="\n".join(rows))


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
