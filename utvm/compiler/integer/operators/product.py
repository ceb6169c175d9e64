# SPDX-License-Identifier: Apache-2.0
"""Products of int8 tensors: TensorFlow Lite's MUL."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import Shape, binary, clamped, requantized
from utvm.compiler.integer.quantities import View
from utvm.compiler.integer.reader import Reader
from utvm.compiler.integer.records import Computation, Operator, Rescale
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Product(Computation):
    """The product of two tensors, with broadcasting: TensorFlow Lite's MUL.

    Attributes:
        shapes: of the operands.
        zeros: zero points of the operands.
        output: rescaling of the product.
        output_zero: zero point of the product.
        low, high: clamp.
    """

    shapes: tuple[Shape, Shape]
    zeros: tuple[int, int]
    output: Rescale
    output_zero: int
    low: int
    high: int

    @property
    def output_shape(self) -> Shape:
        """The operands' shapes, broadcast."""
        return tuple(np.broadcast_shapes(*self.shapes))


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    reals = reader.operands(reader.call(core))
    if reals is None:
        return None
    first, second = reals
    views, order = reader.aligned([first.view, second.view])
    record = Product(
        (views[0].shape or (1,), views[1].shape or (1,)),
        (first.quantity.zero, second.quantity.zero),
        fixed_point.rescale([first.quantity.scale * second.quantity.scale / goal.quantity.scale]),
        goal.quantity.zero,
        goal.low,
        goal.high,
    )
    return View(reader.add(record, views, name, record.output_shape), order)


def _make(record: Product, _: Target) -> Operator:
    def compute(a: Any, b: Any) -> Any:
        product = (a - record.zeros[0]) * (b - record.zeros[1])
        return clamped(requantized(product, record.output) + record.output_zero, record.low, record.high)

    return binary("multiply_int8", record.shapes, compute)


OPERATOR = Int8Operator(Product, _make, ("relax.multiply",), _recognise)
