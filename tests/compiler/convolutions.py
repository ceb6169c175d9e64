# SPDX-License-Identifier: Apache-2.0
"""Random int8 convolutions for tests, a numpy reference, and their C functions."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.base.process import run_tool
from utvm.compiler import Target
from utvm.compiler.c.helpers import helper_definitions
from utvm.compiler.c.printer import CFunction, print_function
from utvm.compiler.kernels.convolution import make
from utvm.compiler.kernels.functions import THRIFTY
from utvm.compiler.kernels.records import Convolution, Operator, Rescale, Residual
from utvm.compiler.library import HERE
from utvm.compiler.memory.graph import overlaps_of, with_overlaps
from utvm.compiler.schedule.lower import lower

Int8 = npt.NDArray[np.int8]

DSP = Target(extensions=("dsp",))
DUAL = Target(extensions=("dsp", "dual"))
PACKED = Target(extensions=("dsp",), goal="flash")
MVE = Target(extensions=("dsp", "mve"))
NEON = Target(extensions=("neon",))
_HEADERS = "#include <stdint.h>\n#include <stdbool.h>\n#include <string.h>\n#include <math.h>\n"
_FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]


@dataclass(frozen=True)
class Shape:
    """Shapes of a convolution, for :func:`random_record`.

    Attributes:
        largest: the largest magnitude of a weight.
        relu: the lowest output is the zero point, as after a ReLU.
        groups: of channels, with zero weights between them.
    """

    height: int = 6
    width: int = 7
    channels: int = 4
    outputs: int = 6
    filter: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    multiplier: int = 0
    residual: bool = False
    clamped: bool = False
    largest: int = 127
    relu: bool = False
    groups: int = 1

    @property
    def is_legal(self) -> bool:
        """Whether the filter fits the padded image."""
        top, left, bottom, right = self.padding
        rows, columns = ((extent - 1) * step for extent, step in zip(self.filter, self.dilation, strict=True))
        return self.height + top + bottom > rows and self.width + left + right > columns


def random_record(shape: Shape, seed: int) -> Convolution:
    """A convolution with random numbers; with multiplier > 0, it is depthwise."""
    generator = np.random.default_rng(seed)

    def rescale(count: int, low: int, high: int) -> Rescale:
        multipliers = generator.integers(2**30, 2**31, count).astype(np.int32)
        return Rescale(multipliers, generator.integers(low, high, count).astype(np.int32))

    def zero() -> int:
        return int(generator.integers(-128, 128))

    outputs = shape.channels * shape.multiplier or shape.outputs
    depth = 1 if shape.multiplier else shape.channels
    limits = (-100, 90) if shape.clamped else (-128, 127)
    residual = None
    if shape.residual:
        parts = [rescale(1, -1, 1), rescale(1, -1, 1), rescale(1, -20, -18)]
        residual = Residual(zero(), zero(), *parts, zero() // 4, *limits)
    weights = generator.integers(-shape.largest, min(shape.largest, 127) + 1, (outputs, *shape.filter, depth))
    if shape.groups > 1:
        own, other = (np.arange(count) * shape.groups // count for count in (outputs, depth))
        weights *= (own[:, None] == other)[:, None, None]
    return Convolution(
        (shape.height, shape.width, shape.channels),
        weights.astype(np.int8),
        generator.integers(-3000, 3000, outputs).astype(np.int32),
        shape.strides,
        shape.dilation,
        shape.padding,
        bool(shape.multiplier),
        zero(),
        -128 if shape.relu else zero(),
        rescale(outputs, -11, -5),
        *limits,
        residual,
    )


def random_inputs(record: Convolution, seed: int) -> list[Int8]:
    """Random inputs of a convolution."""
    generator = np.random.default_rng(seed)
    shapes = [record.input_shape] + [record.output_shape] * (record.residual is not None)
    return [generator.integers(-128, 128, shape).astype(np.int8) for shape in shapes]


def reference(record: Convolution, inputs: Sequence[Int8]) -> Int8:
    """Compute a convolution by TensorFlow Lite's specification, in 64 bits."""
    height, width, outputs = record.output_shape
    top, left, bottom, right = record.padding
    data = np.pad(inputs[0].astype(np.int64) - record.input_zero, ((top, bottom), (left, right), (0, 0)))
    weights = record.weights.astype(np.int64)
    sums = np.zeros((height, width, outputs), np.int64) + record.bias
    for row in range(weights.shape[1]):
        for column in range(weights.shape[2]):
            y, x = row * record.dilation[0], column * record.dilation[1]
            rows = slice(y, y + (height - 1) * record.strides[0] + 1, record.strides[0])
            columns = slice(x, x + (width - 1) * record.strides[1] + 1, record.strides[1])
            window = data[rows, columns]
            if record.depthwise:
                sums += np.repeat(window, outputs // window.shape[2], axis=2) * weights[:, row, column, 0]
            else:
                sums += window @ weights[:, row, column].T
    result = np.clip(_rescale(sums, record.rescale) + record.output_zero, record.low, record.high)
    if record.residual is not None:
        residual = record.residual
        total = _rescale((result - residual.result_zero) << 20, residual.result)
        total += _rescale((inputs[1].astype(np.int64) - residual.other_zero) << 20, residual.other)
        result = np.clip(_rescale(total, residual.output) + residual.output_zero, residual.low, residual.high)
    return np.asarray(result.astype(np.int8))


def _rescale(value: npt.NDArray[np.int64], rescale: Rescale) -> npt.NDArray[np.int64]:
    shifts = rescale.shifts.astype(np.int64)
    left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
    # Halves go up in the first rounding, away from zero in the second.
    high = ((value << left) * rescale.multipliers.astype(np.int64) + 2**30) // 2**31
    magnitude = (np.abs(high) + (1 << right) // 2) >> right
    return np.asarray(np.sign(high) * magnitude)


def overlap_distances(minimum: int | None) -> list[int]:
    """Distances, in bytes, from an output's start to an input's, for an operator's declared overlap."""
    if minimum is None or minimum == HERE:
        return [] if minimum is None else [0]
    return [minimum, minimum + 1, minimum + 17]


def _smallest(operator: Operator) -> Operator:
    function = operator.function
    while function.attrs and THRIFTY in function.attrs:
        function = function.attrs[THRIFTY]
    return replace(operator, function=with_overlaps(function))


class Functions:
    """C functions of convolutions, ``operator_0`` and so on, in their fastest or smallest form."""

    def __init__(self, records: Sequence[Convolution], target: Target, form: str = "fastest") -> None:
        self.operators: list[Operator] = [make(record, target) for record in records]
        if form == "smallest":
            self.operators = [_smallest(item) for item in self.operators]
        functions = {f"operator_{number}": item.function for number, item in enumerate(self.operators)}
        self.overlaps = [overlaps_of(function) for function in functions.values()]
        lowered = lower(functions)
        self.printed: list[CFunction] = [print_function(name, body) for name, body in lowered.items()]
        helpers = frozenset[str]().union(*(item.helpers for item in self.printed))
        texts = [*helper_definitions(helpers), *(item.definition for item in self.printed)]
        self.text = _HEADERS + "\n".join(texts)


class HostFunctions:
    """C functions, compiled with this computer's gcc."""

    def __init__(self, functions: Functions, directory: Path, extra: Sequence[str] = ("-O2",)) -> None:
        self._functions = functions
        source, library = directory / "operators.c", directory / "operators.so"
        source.write_text(functions.text, encoding="utf-8")
        run_tool(["gcc", *_FLAGS, *extra, "-shared", "-fPIC", "-o", library, source, "-lm"])
        self._library = ctypes.CDLL(str(library))

    def __call__(self, number: int, record: Convolution, inputs: Sequence[Int8]) -> Int8:
        output = np.zeros(record.output_shape, np.int8)
        self._call(number, [array.ctypes.data for array in inputs], output.ctypes.data)
        return output

    def run_overlapping(
        self, number: int, record: Convolution, inputs: Sequence[Int8], input_index: int, distance: int
    ) -> Int8:
        """Run with the output's start a number of bytes before an input, in shared memory."""
        size = int(np.prod(record.output_shape))
        memory = np.zeros(distance + max(inputs[input_index].size, size) + 16, np.int8)
        memory[distance : distance + inputs[input_index].size] = inputs[input_index].ravel()
        addresses = [array.ctypes.data for array in inputs]
        addresses[input_index] = memory.ctypes.data + distance
        self._call(number, addresses, memory.ctypes.data)
        return memory[:size].reshape(record.output_shape)

    def _call(self, number: int, inputs: list[int], output: int) -> None:
        operator, printed = self._functions.operators[number], self._functions.printed[number]
        workspace = np.full(printed.workspace_bytes + 16, 0x5A, np.uint8)
        constants = [np.ascontiguousarray(array) for array in operator.constants]
        addresses: list[Any] = [*inputs, *(array.ctypes.data for array in constants), output]
        if printed.workspace_bytes:
            addresses.append(workspace.ctypes.data)
        getattr(self._library, f"operator_{number}")(*map(ctypes.c_void_p, addresses))
        assert (workspace[printed.workspace_bytes :] == 0x5A).all(), "wrote behind its workspace"
