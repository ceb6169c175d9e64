# SPDX-License-Identifier: Apache-2.0
"""A use of an operator in a TensorFlow Lite model, as kernels read it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite
from tvm import relax

from utvm.compiler.kernels.quantities import Goal, Quantity, Real, Value, View, quantity_of, tensor_type
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.read.tflite_records import TfliteOperator, TfliteTensor
from utvm.compiler.target import ANY, Target
from utvm.errors import CompileError

_ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: (-math.inf, math.inf),
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


@dataclass(frozen=True)
class IntegerLayer:
    """An integer operator, a packed call until ``build`` (reader, arguments, result's name) adds its nodes."""

    build: Callable[[Reader, Sequence[Any], str], View | Value]
    weights: Any = None


@dataclass(frozen=True)
class Use:
    """A use of an operator in a model."""

    operator: TfliteOperator
    inputs: tuple[TfliteTensor | None, ...]
    outputs: tuple[TfliteTensor, ...]
    content: bytes
    value: Callable[[int], Any]
    builder: Any
    layers: dict[str, IntegerLayer] = field(default_factory=dict)
    target: Target = ANY

    @property
    def result(self) -> TfliteTensor:
        return self.outputs[0]

    def input(self, number: int) -> TfliteTensor:
        tensor = self.inputs[number] if number < len(self.inputs) else None
        if tensor is None:
            raise CompileError(f"its operand {number} is missing")
        return tensor

    def has(self, number: int) -> bool:
        return number < len(self.inputs) and self.inputs[number] is not None

    def dtype(self, number: int = 0) -> str:
        return self.input(number).dtype

    def constant(self, number: int) -> Any:
        array = self.value(number)
        if array is None:
            raise CompileError(f"its operand {number} must be constant")
        return array

    def options(self, table: Any) -> Any:
        """Return the options as the schema's table, or its defaults if the file has none."""
        options = table()
        if self.operator.options is None:
            empty = flatbuffers.Builder(16)
            empty.StartObject(0)
            empty.Finish(empty.EndObject())
            root = bytes(empty.Output())
            options.Init(root, int.from_bytes(root[:4], "little"))
        else:
            options.Init(self.content, self.operator.options.place)
        return options

    def is_all(self, *dtypes: str, operands: int = 1) -> bool:
        """True if the result and the first operands are per-tensor quantised, each in one of these types."""
        tensors = [self.result, *(self.input(number) for number in range(operands))]
        return self.result.dtype in dtypes and all(
            tensor.dtype == self.result.dtype and quantity(tensor) is not None for tensor in tensors
        )

    def real(self, reader: Reader, arguments: Sequence[Any], number: int = 0) -> Real:
        """Return an argument of a layer as integers with scale and zero point."""
        return Real(reader.view(arguments[number]), known_quantity(self.input(number)))

    def goal(self, activation: int = tflite.ActivationFunctionType.NONE) -> Goal:
        moved = 128 if self.result.dtype == "uint8" else 0
        low, high = (limit - moved for limit in limits(activation, self.result))
        return Goal(known_quantity(self.result), low, high)

    def layer(
        self,
        build: Callable[[Reader, Sequence[Any], str], View | Value],
        operands: Sequence[Any],
        shape: Sequence[int],
        weights: Any = None,
    ) -> Any:
        """Call a layer with one result."""
        if math.prod(shape) != self.result.size:
            raise CompileError(f"makes a tensor of shape {tuple(shape)}, but the file declares {self.result.shape}")
        return call_layer(self.layers, IntegerLayer(build, weights), operands, self.result)


def call_layer(
    layers: dict[str, IntegerLayer], layer: IntegerLayer, operands: Sequence[Any], result: TfliteTensor
) -> Any:
    name = f"utvm.layer_{len(layers)}"
    layers[name] = layer
    return relax.op.call_dps_packed(name, relax.Tuple(list(operands)), tensor_type(result.shape, result.dtype))


def quantity(tensor: TfliteTensor) -> Quantity | None:
    """Return a tensor's quantity (uint8 moved to int8) if it is per-tensor quantised."""
    known = tensor.quantisation
    return None if known is None else quantity_of(known.scales, known.zero_points, tensor.dtype)


def known_quantity(tensor: TfliteTensor) -> Quantity:
    """As :func:`quantity`, for a tensor that must have one."""
    known = quantity(tensor)
    if known is None:
        raise CompileError(f"the tensor {tensor.name!r} has no scale of its own")
    return known


def scale_of(tensor: TfliteTensor) -> np.float32:
    known = tensor.quantisation
    if known is None or known.scales.size != 1 or not known.scales[0] > 0:
        raise CompileError(f"the tensor {tensor.name!r} has no scale of its own")
    scale: np.float32 = np.float32(known.scales[0])
    return scale


def zero_of(tensor: TfliteTensor) -> int:
    return 0 if tensor.quantisation is None else int(tensor.quantisation.zero_points[0])


def activation_bounds(activation: int) -> tuple[float, float]:
    if activation not in _ACTIVATIONS:
        raise CompileError(f"its activation, number {activation}, is not supported")
    return _ACTIVATIONS[activation]


def limits(activation: int, tensor: TfliteTensor) -> tuple[int, int]:
    """Return the integer range of an activation, rounded as TensorFlow Lite does."""
    info = np.iinfo(tensor.dtype)

    def steps(bound: float) -> int:
        count = float(np.float32(bound) / scale_of(tensor))
        return zero_of(tensor) + int(math.copysign(math.floor(abs(count) + 0.5), count))

    low, high = (
        limit if math.isinf(bound) else int(np.clip(steps(bound), info.min, info.max))
        for bound, limit in zip(activation_bounds(activation), (info.min, info.max), strict=True)
    )
    return low, high


def padding_before(kind: int, extent: int, window: int, stride: int, dilation: int, result: int) -> tuple[int, int]:
    if kind == tflite.Padding.VALID:
        return 0, 0
    both = max((result - 1) * stride + (window - 1) * dilation + 1 - extent, 0)
    return both // 2, both - both // 2


def check_states(use: Use, places: tuple[int, ...]) -> None:
    """Refuse states that are not variables."""
    if len(use.outputs) != 1 + len(places):
        raise CompileError(f"its operands {', '.join(map(str, places))} must be variable tensors")
