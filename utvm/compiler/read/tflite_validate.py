# SPDX-License-Identifier: Apache-2.0
"""Checks on a TensorFlow Lite model; each message names the place."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from utvm.base.storage.config import read_yaml
from utvm.compiler.kernels import kernels
from utvm.compiler.library import check_tensor
from utvm.compiler.read.tflite_records import TfliteGraph, TfliteOperator, TfliteTensor
from utvm.compiler.read.tflite_state import CONTROL, called_graphs, check_call
from utvm.compiler.refusal import Reading, check_order, hints, refusals, refuse
from utvm.errors import CompileError

_DATA = read_yaml(Path(__file__).with_name("tflite_operators.yaml"))[0]
AS_FLOAT = frozenset(_DATA["as_float"].split())
SUPPORTED = frozenset(_DATA["supported"].split())
"""Importable operators by their names in the schema; integer kernels may add more."""

_QUANTISED_TYPES = ("int8", "uint8", "int16", "int32", "int64")

_POSITIVE: dict[str, dict[int, str]] = _DATA["positive"]
_DEFAULT_ONE = ("dilation_w_factor", "dilation_h_factor")
_MAX_OPTION = 1 << 16


def check(graph: TfliteGraph, origin: str) -> None:
    numbers = called_graphs((graph, *graph.graphs[1:]), origin)
    _check_graph(graph, graph.graphs, origin)
    for number in numbers:
        _check_graph(graph.graphs[number], graph.graphs, f"{origin}: graph {number}")


def _check_graph(graph: TfliteGraph, graphs: Sequence[TfliteGraph], origin: str) -> None:
    if not graph.operators or not graph.outputs:
        raise CompileError(f"{origin}: the graph is empty", "export a model with at least one operator and output")
    for operator in graph.operators:
        _check_numbers(graph, operator, origin)
    _check_parts(graph, origin)
    _check_ends(graph, origin)
    _check_order(graph, origin)
    for operator in graph.operators:
        if operator.name in CONTROL:
            check_call(graph, operator, graphs, origin)


def place(graph: TfliteGraph, operator: TfliteOperator) -> str:
    output = graph.tensors[operator.outputs[0]].name if operator.outputs else ""
    return f"{operator.name} (at {output})" if output else operator.name


def _check_parts(graph: TfliteGraph, origin: str) -> None:
    checks: list[Callable[[], None]] = [
        lambda: _check_operators(graph),
        lambda: _check_hybrid(graph),
        *(
            functools.partial(_check_tensor, tensor, f"tensor {tensor.name or number!r}")
            for number, tensor in enumerate(graph.tensors)
        ),
        *(functools.partial(_check_options, operator, place(graph, operator)) for operator in graph.operators),
    ]
    refused = refusals(checks)
    refuse(origin, [error.message for error in refused], hints(refused))


def _check_operators(graph: TfliteGraph) -> None:
    unknown = [operator for operator in graph.operators if operator.name not in SUPPORTED]
    if unknown:
        # Imports TVM, which takes seconds, so only if needed.
        registered = {name for kernel in kernels() for name in (*kernel.tflite, *kernel.real)}
        unknown = [operator for operator in unknown if operator.name not in registered]
    if unknown:
        raise CompileError(
            f"operators that are not supported: {', '.join(place(graph, item) for item in unknown)}",
            "replace them in the model by supported operators",
        )


def _check_hybrid(graph: TfliteGraph) -> None:
    hybrid = [place(graph, operator) for operator in graph.operators if _is_hybrid(graph, operator)]
    if hybrid:
        raise CompileError(
            f"operators with quantised weights and float activations: {', '.join(hybrid)}",
            "quantise the model fully, with a representative data set, or not at all",
        )


def _is_hybrid(graph: TfliteGraph, operator: TfliteOperator) -> bool:
    layers = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SVDF")
    if operator.name not in (*layers, "UNIDIRECTIONAL_SEQUENCE_LSTM"):
        return False
    kinds = [graph.tensors[number].dtype for number in operator.inputs[:2] if number >= 0]
    return kinds[:1] == ["float32"] and kinds[1:] in (["uint8"], ["int4"])


def _check_tensor(tensor: TfliteTensor, place: str) -> None:
    if tensor.sparse:
        raise CompileError(f"{place}: is sparse, which is not supported", "export the model with dense weights")
    if tensor.variable:
        raise CompileError(
            f"{place}: keeps its value between runs, which is supported of the states of "
            "UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF only, and not in a graph that IF or WHILE calls",
            "make the state an input and an output of the model, or a variable",
        )
    if tensor.dtype == "float64":
        raise CompileError(f"{place}: has elements of type float64, which is not supported", "export it in float32")
    if any(extent < 0 for extent in tensor.shape):
        raise CompileError(f"{place}: has a negative dimension: {tensor.shape}")
    # Half floats are only a storage format of weights: an operator converts them to float.
    half = tensor.dtype == "float16" and tensor.data is not None
    size = check_tensor(place, tensor.shape, "int16" if half else tensor.dtype, may_be_empty=True)
    if tensor.data is not None and tensor.data.size != size:
        raise CompileError(f"{place}: holds {tensor.data.size} bytes where its shape needs {size}")
    _check_quantisation(tensor, place)


def _check_quantisation(tensor: TfliteTensor, place: str) -> None:
    known = tensor.quantisation
    if known is None:
        return
    if tensor.dtype == "float32":
        return  # Left over from training; nothing reads it.
    if tensor.dtype not in _QUANTISED_TYPES:
        raise CompileError(f"{place}: is quantised, but has elements of type {tensor.dtype}")
    # A scale of zero is written for shapes and axes, which are not quantised.
    if not np.all(np.isfinite(known.scales)) or np.any(known.scales < 0):
        raise CompileError(f"{place}: has a scale that is not a positive number")
    limits = np.iinfo(tensor.dtype)
    if np.any(known.zero_points < limits.min) or np.any(known.zero_points > limits.max):
        raise CompileError(f"{place}: has a zero point that {tensor.dtype} cannot hold")
    if known.scales.size == 1:
        return
    if not 0 <= known.axis < len(tensor.shape) or tensor.shape[known.axis] != known.scales.size:
        raise CompileError(
            f"{place}: has {known.scales.size} scales along dimension {known.axis} of shape {tensor.shape}"
        )
    if np.any(known.zero_points != 0):
        raise CompileError(
            f"{place}: has a zero point for each channel, which is not supported", "quantise weights symmetrically"
        )


def _check_numbers(graph: TfliteGraph, operator: TfliteOperator, origin: str) -> None:
    count = len(graph.tensors)
    if not operator.outputs:
        raise CompileError(f"{origin}: {operator.name} has no output")
    bad_inputs = any(not -1 <= number < count for number in operator.inputs)
    if bad_inputs or any(not 0 <= number < count for number in operator.outputs):
        raise CompileError(f"{origin}: {operator.name} reads or writes a tensor that the file does not have")


def _check_options(operator: TfliteOperator, place: str) -> None:
    fields = _POSITIVE.get(operator.name)
    if fields is None:
        return
    if operator.options is None:
        raise CompileError(f"{place}: has no options, which it needs")
    for number, name in fields.items():
        value = operator.options.integer(number, "<i", 1 if name in _DEFAULT_ONE else 0)
        if not 0 < value <= _MAX_OPTION:
            raise CompileError(f"{place}: its {name} is {value}, which is out of range")


def _check_ends(graph: TfliteGraph, origin: str) -> None:
    for kind, numbers in (("input", graph.inputs), ("output", graph.outputs)):
        for number in numbers:
            if not 0 <= number < len(graph.tensors):
                raise CompileError(f"{origin}: an {kind} is tensor {number}, of {len(graph.tensors)}")
            tensor = graph.tensors[number]
            if 0 in tensor.shape:
                raise CompileError(
                    f"{origin}: {kind} {tensor.name!r}: has no elements: shape {tensor.shape}",
                    "remove empty tensors from the model",
                )
            # Most exporters write a variable batch size. It is one here, as in TensorFlow Lite's own runtimes.
            if kind == "input" and -1 in tensor.signature[1:]:
                raise CompileError(
                    f"{origin}: input {tensor.name!r}: has a dimension without fixed size: {tensor.signature}",
                    "a board's memory is planned ahead: export the model with fixed sizes",
                )
            if kind == "input" and tensor.data is not None:
                raise CompileError(f"{origin}: input {tensor.name!r}: is a constant")
    if len(set(graph.inputs)) != len(graph.inputs):
        raise CompileError(f"{origin}: one tensor is two inputs")


def _check_order(graph: TfliteGraph, origin: str) -> None:
    # The shape of a scalar is a constant without elements, and so without data.
    stored = {number for number, tensor in enumerate(graph.tensors) if tensor.data is not None or 0 in tensor.shape}
    known = stored | set(graph.inputs) | {state.read for state in graph.states} | {-1}
    produced = set(known)
    for operator in graph.operators:
        for number in operator.outputs:
            if number in produced:
                name = graph.tensors[number].name
                raise CompileError(f"{origin}: tensor {name!r} is written more than once", "export the model again")
            produced.add(number)
    steps = [Reading(place(graph, item), item.inputs, item.outputs) for item in graph.operators]
    check_order(origin, steps, known, lambda number: repr(graph.tensors[number].name), "sort the operators")
    for number in graph.outputs:
        if number not in known:
            raise CompileError(f"{origin}: nothing produces the output {graph.tensors[number].name!r}")
    for state in graph.states:
        if state.written not in known:
            raise CompileError(f"{origin}: nothing produces the value of the variable {state.name!r}")
