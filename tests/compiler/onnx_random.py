# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of one or several operators, against ONNX's reference evaluator and ONNX Runtime.

If the two differ where ONNX is ambiguous, both results are accepted.
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
    """A model with inputs and expected outputs.

    Attributes:
        operators: the operator of each output.
        sets: inputs, and the outputs of the first reference.
        others: outputs of all references.
        steps: allowed difference of each output, if it is quantised.
    """

    operators: list[str]
    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Array], list[Array]]]
    others: list[list[Array]]
    steps: list[float] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """Version of the operator set."""
        return int(self.model.opset_import[0].version)

    @property
    def operator(self) -> str:
        """Names of the operators."""
        return ", ".join(dict.fromkeys(self.operators))


def draw_case(operator: str, number: int, name: str, opset: int = 0) -> Case | None:
    """Draw a model of an operator; None if neither reference runs it.

    Args:
        opset: version of the operator set; 0 for a random one.
    """
    random = np.random.default_rng([zlib.crc32(operator.encode()), number])
    return build_case(OPERATORS[operator], operator, Draw(opset or _opset(operator, random), random), name)


def build_case(drawing: Drawing, operator: str, draw: Draw, name: str) -> Case | None:
    """Draw a model and run the references; None if neither runs it."""
    drawing(draw)
    model = draw.finish(name)
    inputs = draw.input_values
    results = [
        result
        for result in (None if draw.misread else run_evaluator(model, inputs), run_runtime(model, inputs))
        if result is not None
    ]
    results = [result for result in results if with_output_types(model, result)]
    if not results or any(array.size == 0 for array in results[0]):
        return None
    model = with_output_types(model, results[0]) or model
    count = len(results[0])
    sets = [(list(inputs.values()), results[0])]
    return Case([operator] * count, name, model, sets, results, [draw.steps] * count)


def join_cases(cases: Sequence[Case], name: str) -> Case:
    """Join models of one version into one."""
    model = onnx.ModelProto()
    model.CopyFrom(cases[0].model)
    del model.graph.node[:], model.graph.input[:], model.graph.output[:], model.graph.initializer[:]
    for number, case in enumerate(cases):
        graph = onnx.compose.add_prefix_graph(case.model.graph, f"p{number}_")
        model.graph.node.extend(graph.node)
        model.graph.input.extend(graph.input)
        model.graph.output.extend(graph.output)
        model.graph.initializer.extend(graph.initializer)
    imports = {opset_import.domain: opset_import.version for case in cases for opset_import in case.model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*opset_import) for opset_import in imports.items())
    inputs = [array for case in cases for array in case.sets[0][0]]
    expected = [array for case in cases for array in case.sets[0][1]]
    operators = [f"{operator} {case.opset}" for case in cases for operator in case.operators]
    return Case(
        operators, name, model, [(inputs, expected)], [expected], [step for case in cases for step in case.steps]
    )


def difference(case: Case, outputs: list[list[Array]] | str) -> str:
    """Difference between outputs and those of all references; empty if one reference agrees."""
    if isinstance(outputs, str):
        return outputs
    texts = [_difference(case, expected, outputs[0]) for expected in case.others]
    return "" if "" in texts else texts[0]


def _difference(case: Case, expected_outputs: Sequence[Array], results: Sequence[Array]) -> str:
    for operator, steps, expected, result in zip(case.operators, case.steps, expected_outputs, results, strict=True):
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            return f"{operator}: {result.shape} of {result.dtype} where {expected.shape} of {expected.dtype} is right"
        if steps:
            differs = np.abs(result.astype(np.float64) - expected).max() > steps * 1.001 + 1e-4
        else:
            differs = not np.allclose(result, expected, rtol=2e-4, atol=2e-5, equal_nan=True)
        if differs:
            return f"{operator}: {result.ravel()[:6]} where {expected.ravel()[:6]} is right"
    return ""


def with_output_types(model: onnx.ModelProto, arrays: Sequence[Array]) -> onnx.ModelProto | None:
    """Copy of a model with output types; None if ONNX infers other types."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for value, array in zip(typed.graph.output, arrays, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    try:
        onnx.shape_inference.infer_shapes(typed, check_type=True, strict_mode=True, data_prop=True)
    except Exception:
        return None
    return typed


def _opset(operator: str, random: np.random.Generator) -> int:
    """Draw a version; all definitions of an operator are equally likely."""
    first, last = random.choice(definitions(operator))
    return int(random.integers(first, last + 1))


def definitions(operator: str) -> list[tuple[int, int]]:
    """First and last version of each definition of an operator."""
    first = operator.split(" ", maxsplit=1)[0]
    starts = versions(first)
    if operator in INTEGERS and not first.endswith("Linear"):
        # The versions of all operators around a quantised tensor.
        starts = [start for start in (10, 13, 15, 17, 19, 21, 23) if start >= max(min(starts, default=1), 10)]
    if first == "Resize":
        starts = [7, 9, *starts]  # Named Upsample.
    starts = sorted({max(start, OLDEST) for start in starts})
    ends = [start_of_next - 1 for start_of_next in starts[1:]] + [_LAST.get(first, NEWEST)]
    return list(zip(starts, ends, strict=True))


_LAST = {"Scatter": 10}
"""Last version of a removed operator."""


def run_evaluator(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array] | None:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(output) for output in ReferenceEvaluator(model).run(None, dict(inputs))]
    except Exception:  # It raises numpy's exceptions.
        return None


def run_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array] | None:
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
        return [np.asarray(output) for output in session.run(None, dict(inputs))]
    except Exception:  # Not implemented.
        return None
