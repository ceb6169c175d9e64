# SPDX-License-Identifier: Apache-2.0
"""What a model's tensors are on samples, as ONNX's reference implementation computes them."""

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
    """The lowest and the highest number of a tensor; 0 is between them."""

    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """What quantisation has cost a tensor.

    Attributes:
        tensor: its name.
        operator: what makes it.
        snr_db: signal to noise in decibels; infinite where nothing was lost.
    """

    tensor: str
    operator: str
    snr_db: float


def model_outputs(model: onnx.ModelProto, samples: Sequence[Sample]) -> list[list[npt.NDArray[Any]]]:
    """Return a model's outputs for each sample."""
    names = [each.name for each in model.graph.output]
    return [[values[name] for name in names] for values in _values(model, names, samples)]


def ranges(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, Range]:
    """Return the range of each tensor of real numbers that a node makes or the model is given."""
    found: dict[str, Range] = {}
    for values in _values(model, _made(model), samples):
        for name, array in values.items():
            if array.dtype.kind == "f" and array.size:
                before = found.get(name, Range(0.0, 0.0))
                low, high = float(np.min(array)), float(np.max(array))
                found[name] = Range(min(before.low, low), max(before.high, high))
    return found


def costs(model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Sample]) -> list[Cost]:
    """Return what each tensor that both models make has lost, in the order in which they are made."""
    operators = {name: node.op_type for node in model.graph.node for name in node.output}
    theirs = set(_made(quantised))
    names = [name for name in _made(model) if name in operators and name in theirs]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for real, lossy in zip(_values(model, names, samples), _values(quantised, names, samples), strict=True):
        for name in names:
            if real[name].dtype.kind == "f":
                wanted = np.asarray(real[name], np.float64)
                signal[name] += float(np.sum(wanted**2))
                noise[name] += float(np.sum((wanted - lossy[name]) ** 2))
    return [
        Cost(name, operators[name], _decibels(signal[name], noise[name])) for name in names if signal[name] > 0
    ]


def _decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise else math.inf


def _made(model: onnx.ModelProto) -> list[str]:
    constants = {each.name for each in model.graph.initializer}
    given = [each.name for each in model.graph.input if each.name not in constants]
    return [*given, *(name for node in model.graph.node for name in node.output if name)]


def _values(
    model: onnx.ModelProto, names: Sequence[str], samples: Sequence[Sample]
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield some tensors' values for each sample."""
    from onnx.reference import ReferenceEvaluator

    told = onnx.ModelProto()
    told.CopyFrom(model)
    constants = {each.name for each in model.graph.initializer}
    given = [each.name for each in model.graph.input if each.name not in constants]
    del told.graph.output[:]
    made = [name for name in names if name not in given]
    told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    evaluator: Any = ReferenceEvaluator(told)
    for sample in samples:
        fed = dict(zip(given, sample, strict=True))
        yield fed | dict(zip(made, map(np.asarray, evaluator.run(None, fed)), strict=True))
