# SPDX-License-Identifier: Apache-2.0
"""Values of a model's tensors on samples, computed by ONNX's reference implementation."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

Sample = Sequence[npt.NDArray[Any]]
"""An array for each input, in the model's order."""


@dataclass(frozen=True)
class Range:
    """Range of a tensor's values, including 0."""

    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """Quantisation error of a tensor; ``snr_db`` is infinite if there is none."""

    tensor: str
    operator: str
    snr_db: float


def model_outputs(model: onnx.ModelProto, samples: Sequence[Sample]) -> list[list[npt.NDArray[Any]]]:
    """Outputs of a model for each sample."""
    names = [output.name for output in model.graph.output]
    return [[values[name] for name in names] for values in _values(model, names, samples)]


def ranges(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, Range]:
    result: dict[str, Range] = {}
    for values in _values(model, _variable_names(model), samples):
        for name, array in values.items():
            if array.dtype.kind == "f" and array.size:
                before = result.get(name, Range(0.0, 0.0))
                low, high = float(np.min(array)), float(np.max(array))
                result[name] = Range(min(before.low, low), max(before.high, high))
    return result


def costs(model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Sample]) -> list[Cost]:
    """Quantisation error of each tensor that both models compute, in execution order."""
    operators = {name: node.op_type for node in model.graph.node for name in node.output}
    theirs = set(_variable_names(quantised))
    names = [name for name in _variable_names(model) if name in operators and name in theirs]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for real, lossy in zip(_values(model, names, samples), _values(quantised, names, samples), strict=True):
        for name in names:
            if real[name].dtype.kind == "f":
                reference = np.asarray(real[name], np.float64)
                signal[name] += float(np.sum(reference**2))
                noise[name] += float(np.sum((reference - lossy[name]) ** 2))
    return [
        Cost(name, operators[name], 10 * math.log10(signal[name] / noise[name]) if noise[name] else math.inf)
        for name in names
        if signal[name] > 0
    ]


def input_names(model: onnx.ModelProto) -> list[str]:
    """Inputs of a model that are not constants."""
    constants = {constant.name for constant in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in constants]


def _variable_names(model: onnx.ModelProto) -> list[str]:
    return [*input_names(model), *(name for node in model.graph.node for name in node.output if name)]


def _values(
    model: onnx.ModelProto, names: Sequence[str], samples: Sequence[Sample]
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    from onnx.reference import ReferenceEvaluator

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = input_names(model)
    outputs = [name for name in names if name not in inputs]
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    evaluator: Any = ReferenceEvaluator(copy)
    for sample in samples:
        feed = dict(zip(inputs, sample, strict=True))
        yield feed | dict(zip(outputs, map(np.asarray, evaluator.run(None, feed)), strict=True))
