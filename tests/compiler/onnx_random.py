# SPDX-License-Identifier: Apache-2.0
"""ONNX models of an operator, or of a few, drawn at random, against ONNX's reference evaluator and ONNX Runtime.

Where the two differ, and each has its own reading of what ONNX leaves open, either answer is right.
"""

import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.compose
import onnx.shape_inference
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_computed import COMPUTED, Drawing
from onnx_draw import NEWEST, OLDEST, Array, Draw, versions
from onnx_integers import INTEGERS
from onnx_layers import LAYERS
from onnx_moved import MOVED

OPERATORS: dict[str, Drawing] = {**COMPUTED, **LAYERS, **MOVED, **INTEGERS}


@dataclass
class Case:
    """A model, and what it is given.

    Attributes:
        operators: which one each output is of.
        sets: the inputs, and what the first of the references answers.
        others: what each of the references answers.
        steps: by how much each output may differ, if it is a quantised one.
    """

    operators: list[str]
    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Array], list[Array]]]
    others: list[list[Array]]
    steps: list[float] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """The version of its operator set."""
        return int(self.model.opset_import[0].version)

    @property
    def operator(self) -> str:
        """Say which operators it is made of."""
        return ", ".join(dict.fromkeys(self.operators))


def drawn(operator: str, number: int, name: str, opset: int = 0) -> Case | None:
    """Draw a model of an operator; None where neither reference runs what was drawn.

    Args:
        opset: the version of the operator set; 0 for one that is drawn, too.
    """
    random = np.random.default_rng([zlib.crc32(operator.encode()), number])
    return made_by(OPERATORS[operator], operator, Draw(opset or _opset(operator, random), random), name)


def made_by(drawing: Drawing, operator: str, draw: Draw, name: str) -> Case | None:
    """Draw a model, and ask the references; None where neither runs what was drawn."""
    drawing(draw)
    model = draw.finish(name)
    inputs = draw.given
    answers = [
        each
        for each in (None if draw.misread else _by_onnx(model, inputs), _by_runtime(model, inputs))
        if each is not None
    ]
    answers = [each for each in answers if _typed(model, each)]
    if not answers or any(array.size == 0 for array in answers[0]):
        return None
    model = _typed(model, answers[0]) or model
    count = len(answers[0])
    given = [(list(inputs.values()), answers[0])]
    return Case([operator] * count, name, model, given, answers, [draw.steps] * count)


def joined(cases: Sequence[Case], name: str) -> Case:
    """Put models of one version side by side into one."""
    model = onnx.ModelProto()
    model.CopyFrom(cases[0].model)
    del model.graph.node[:], model.graph.input[:], model.graph.output[:], model.graph.initializer[:]
    for number, case in enumerate(cases):
        graph = onnx.compose.add_prefix_graph(case.model.graph, f"p{number}_")
        model.graph.node.extend(graph.node)
        model.graph.input.extend(graph.input)
        model.graph.output.extend(graph.output)
        model.graph.initializer.extend(graph.initializer)
    imports = {each.domain: each.version for case in cases for each in case.model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*each) for each in imports.items())
    given = [array for case in cases for array in case.sets[0][0]]
    wanted = [array for case in cases for array in case.sets[0][1]]
    operators = [f"{operator} {case.opset}" for case in cases for operator in case.operators]
    return Case(operators, name, model, [(given, wanted)], [wanted], [each for case in cases for each in case.steps])


def difference(case: Case, answers: list[list[Array]] | str) -> str:
    """Return how answers differ from those of all references; empty where they do not differ from one."""
    if isinstance(answers, str):
        return answers
    texts = [_difference(case, wanted, answers[0]) for wanted in case.others]
    return "" if "" in texts else texts[0]


def _difference(case: Case, wanted: Sequence[Array], results: Sequence[Array]) -> str:
    for operator, steps, expected, result in zip(case.operators, case.steps, wanted, results, strict=True):
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            return f"{operator}: {result.shape} of {result.dtype} where {expected.shape} of {expected.dtype} is right"
        if steps:
            far = np.abs(result.astype(np.float64) - expected).max() > steps * 1.001 + 1e-4
        else:
            far = not np.allclose(result, expected, rtol=2e-4, atol=2e-5, equal_nan=True)
        if far:
            return f"{operator}: {result.ravel()[:6]} where {expected.ravel()[:6]} is right"
    return ""


def _typed(model: onnx.ModelProto, answers: Sequence[Array]) -> onnx.ModelProto | None:
    """Return a model whose outputs are said to be as answers are; None where ONNX says otherwise."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for value, array in zip(typed.graph.output, answers, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    try:
        onnx.shape_inference.infer_shapes(typed, check_type=True, strict_mode=True, data_prop=True)
    except Exception:
        return None
    return typed


def _opset(operator: str, random: np.random.Generator) -> int:
    """Draw a version, each definition of an operator as likely as the others."""
    first, last = random.choice(definitions(operator))
    return int(random.integers(first, last + 1))


def definitions(operator: str) -> list[tuple[int, int]]:
    """Return from which version of the operator set to which each definition of an operator holds."""
    first = operator.split(" ", maxsplit=1)[0]
    starts = versions(first)
    if operator in INTEGERS and not first.endswith("Linear"):
        # The operator may be any of those that a quantised tensor stands before and behind.
        starts = [each for each in (10, 13, 15, 17, 19, 21, 23) if each >= max(min(starts, default=1), 10)]
    if first == "Resize":
        starts = [7, 9, *starts]  # As Upsample.
    starts = sorted({max(each, OLDEST) for each in starts})
    ends = [each - 1 for each in starts[1:]] + [_LAST.get(first, NEWEST)]
    return list(zip(starts, ends, strict=True))


_LAST = {"Scatter": 10}
"""When an operator was left out again."""


def _by_onnx(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array] | None:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(each) for each in ReferenceEvaluator(model).run(None, dict(inputs))]
    except Exception:  # It raises whatever numpy does.
        return None


def _by_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(each) for each in session.run(None, dict(inputs))]
    except Exception:  # What it does not implement.
        return None
