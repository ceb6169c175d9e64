# SPDX-License-Identifier: Apache-2.0
"""A quantised model as nodes; where the integers of its tensors are, and the real numbers that they mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from utvm.compiler.kernels.records import Computation


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, or a tuple of tensors, told apart by identity."""

    name: str
    type: Any
    constant: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(extent) for extent in self.type.shape)


@dataclass(frozen=True, eq=False)
class Native:
    """A computation by Relax's own operators.

    Attributes:
        call: the module's call, where there is one; its arguments are not those of the node.
    """

    build: Callable[[Sequence[Any]], Any]
    operator: str
    call: Any = None


@dataclass(frozen=True, eq=False)
class Node:
    """One computation."""

    work: Computation | Native
    inputs: tuple[Value, ...]
    output: Value


def tensor_type(shape: Sequence[int], dtype: str) -> Any:
    return relax.TensorType(tuple(shape), dtype)


def live_nodes(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    wanted = {id(value) for value in results}
    chosen: list[Node] = []
    for node in reversed(nodes):
        if id(node.output) in wanted:
            chosen.append(node)
            wanted.update(id(value) for value in node.inputs)
    return chosen[::-1]


_HALF_RANGE = 128  # What uint8 numbers are moved by to become int8.


@dataclass(frozen=True)
class Quantity:
    """One scale and zero point for a tensor: real = scale * (number - zero)."""

    scale: float
    zero: int


@dataclass(frozen=True)
class Goal:
    """How a float result is quantised.

    Attributes:
        low, high: clamp of the integers, by their type and the activations in between.
    """

    quantity: Quantity
    low: int
    high: int

    @property
    def is_limited(self) -> bool:
        return (self.low, self.high) != (-128, 127)


@dataclass(frozen=True)
class View:
    """A tensor of integers as the model has it, by the tensor that is really computed: int8 in place of uint8.

    Attributes:
        order: the dimensions of base in the order in which the model has them, as for a transposition; None if it
            is the same.
        unsigned: the model has uint8, base holds 128 less.
    """

    base: Value
    order: tuple[int, ...] | None = None
    unsigned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape if self.order is None else tuple(self.base.shape[axis] for axis in self.order)


@dataclass(frozen=True)
class Real:
    """A float tensor that is nothing but a dequantised one.

    Attributes:
        view: the integers. Always signed: :attr:`quantity` says what base's numbers mean.
    """

    view: View
    quantity: Quantity


@dataclass(frozen=True)
class Constants:
    """A constant float tensor that is given by integers.

    Attributes:
        numbers: the integers, zero points taken away.
    """

    numbers: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float32]

    def reshape(self, shape: Sequence[int]) -> "Constants":
        return Constants(self.numbers.reshape(shape), self.scales.reshape(shape))

    def transpose(self, order: Sequence[int]) -> "Constants":
        return Constants(self.numbers.transpose(order), self.scales.transpose(order))

    def scale_of_first(self) -> npt.NDArray[np.float32] | None:
        """The scale of each index of the first dimension; None if there are more than that."""
        rows = self.scales.reshape(self.scales.shape[0], -1)
        return rows[:, 0].copy() if (rows == rows[:, :1]).all() else None


def quantity_of(scales: npt.NDArray[Any], zeros: npt.NDArray[Any], dtype: str) -> Quantity | None:
    """The quantity of numbers that are quantised as a whole, those of uint8 moved to int8; else None."""
    if scales.size != 1 or zeros.size != 1 or not float(scales.ravel()[0]) > 0:
        return None
    zero = int(zeros.ravel()[0]) - (_HALF_RANGE if dtype == "uint8" else 0)
    return Quantity(float(np.float32(scales.ravel()[0])), zero)


def dequantise(
    numbers: npt.NDArray[Any], scales: npt.NDArray[np.float32], zeros: npt.NDArray[Any], axis: int
) -> Constants:
    """A constant tensor of quantised numbers."""

    def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.size == 1:
            return np.broadcast_to(values.reshape(()), numbers.shape)
        along = [1] * numbers.ndim
        along[axis] = values.size
        return np.broadcast_to(values.reshape(along), numbers.shape)

    whole = numbers.astype(np.int32) - spread(zeros).astype(np.int32)
    return Constants(whole, spread(scales.astype(np.float32)))
