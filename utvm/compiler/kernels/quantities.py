# SPDX-License-Identifier: Apache-2.0
"""A quantised model as nodes; its integer tensors and their scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from utvm.compiler.kernels.records import Computation


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor or a tuple of tensors, compared by identity."""

    name: str
    type: Any
    constant: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(extent) for extent in self.type.shape)


@dataclass(frozen=True, eq=False)
class Native:
    """A computation by Relax's own operators; the arguments of ``call``, if any, differ from the node's."""

    build: Callable[[Sequence[Any]], Any]
    operator: str
    call: Any = None


@dataclass(frozen=True, eq=False)
class Node:
    work: Computation | Native
    inputs: tuple[Value, ...]
    output: Value


def tensor_type(shape: Sequence[int], dtype: str) -> Any:
    return relax.TensorType(tuple(shape), dtype)


def live_nodes(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    live = {id(value) for value in results}
    needed: list[Node] = []
    for node in reversed(nodes):
        if id(node.output) in live:
            needed.append(node)
            live.update(id(value) for value in node.inputs)
    return needed[::-1]


_HALF_RANGE = 128  # Offset between uint8 and int8.


@dataclass(frozen=True)
class Quantity:
    """Scale and zero point of a tensor: real = scale * (number - zero)."""

    scale: float
    zero: int


@dataclass(frozen=True)
class Goal:
    """Quantisation of a float result; ``low`` and ``high`` clamp the integers, activations included."""

    quantity: Quantity
    low: int
    high: int

    @property
    def is_limited(self) -> bool:
        return (self.low, self.high) != (-128, 127)


@dataclass(frozen=True)
class View:
    """A tensor in the model's form: ``base``, transposed by ``order`` if any; ``unsigned`` bases hold 128 less."""

    base: Value
    order: tuple[int, ...] | None = None
    unsigned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape if self.order is None else tuple(self.base.shape[axis] for axis in self.order)


@dataclass(frozen=True)
class Real:
    """A float tensor that is only a dequantised integer tensor; ``view`` is always signed."""

    view: View
    quantity: Quantity


@dataclass(frozen=True)
class Constants:
    """A constant float tensor given by integers; ``numbers`` has the zero points subtracted.

    Attributes:
        asymmetric: a zero point is none of TensorFlow Lite's, 0 and for uint8 128.
    """

    numbers: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float32]
    asymmetric: bool = False

    def reshape(self, shape: Sequence[int]) -> "Constants":
        return replace(self, numbers=self.numbers.reshape(shape), scales=self.scales.reshape(shape))

    def transpose(self, order: Sequence[int]) -> "Constants":
        return replace(self, numbers=self.numbers.transpose(order), scales=self.scales.transpose(order))

    def scale_of_first(self) -> npt.NDArray[np.float32] | None:
        """Scale per index of the first dimension; None if the scales have more dimensions."""
        rows = self.scales.reshape(self.scales.shape[0], -1)
        return rows[:, 0].copy() if (rows == rows[:, :1]).all() else None


def quantity_of(scales: npt.NDArray[Any], zeros: npt.NDArray[Any], dtype: str) -> Quantity | None:
    """Return the quantity of a per-tensor quantised tensor, uint8 moved to int8; None if not per-tensor."""
    if scales.size != 1 or zeros.size != 1 or not float(scales.ravel()[0]) > 0:
        return None
    zero = int(zeros.ravel()[0]) - (_HALF_RANGE if dtype == "uint8" else 0)
    return Quantity(float(np.float32(scales.ravel()[0])), zero)


def dequantise(
    numbers: npt.NDArray[Any], scales: npt.NDArray[np.float32], zeros: npt.NDArray[Any], axis: int
) -> Constants:
    """Return a constant tensor of quantised numbers."""

    def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.size == 1:
            return np.broadcast_to(values.reshape(()), numbers.shape)
        along = [1] * numbers.ndim
        along[axis] = values.size
        return np.broadcast_to(values.reshape(along), numbers.shape)

    whole = numbers.astype(np.int32) - spread(zeros).astype(np.int32)
    middle = _HALF_RANGE if numbers.dtype == np.uint8 else 0
    return Constants(whole, spread(scales.astype(np.float32)), bool((zeros != middle).any()))
