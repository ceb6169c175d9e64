# SPDX-License-Identifier: Apache-2.0
"""Sums and differences of int8 tensors: TensorFlow Lite's ADD and SUB."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import Shape, binary, clamped, constant, requantized
from utvm.compiler.integer.quantities import View
from utvm.compiler.integer.reader import Reader, operator_name
from utvm.compiler.integer.records import Computation, Operator, Rescale
from utvm.compiler.target import Target

_ADDITION_SHIFT = 20  # Bits that TensorFlow Lite's ADD and SUB make room for behind their operands.
_EXACT_HALF = 2**30  # A multiplier that is a power of two loses nothing when the number has zeros behind it.


@dataclass(frozen=True)
class Addition(Computation):
    """The sum or difference of two tensors, with broadcasting: TensorFlow Lite's ADD and SUB.

    Attributes:
        shapes: of the operands.
        zeros: zero points of the operands.
        factors: rescalings of ``(operand - zero) << 20`` to the common scale.
        subtract: the second operand is taken away.
        output: rescaling of the sum.
        output_zero: zero point of the sum.
        low, high: clamp.
    """

    shapes: tuple[Shape, Shape]
    zeros: tuple[int, int]
    factors: tuple[Rescale, Rescale]
    subtract: bool
    output: Rescale
    output_zero: int
    low: int
    high: int

    @property
    def output_shape(self) -> Shape:
        """The operands' shapes, broadcast."""
        return tuple(np.broadcast_shapes(*self.shapes))


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    call = reader.call(core)
    reals = reader.operands(call)
    if reals is None:
        return None
    first, second = reals
    common = 2 * max(first.quantity.scale, second.quantity.scale)
    views, order = reader.aligned([first.view, second.view])
    record = Addition(
        (views[0].shape or (1,), views[1].shape or (1,)),
        (first.quantity.zero, second.quantity.zero),
        (
            fixed_point.rescale([first.quantity.scale / common]),
            fixed_point.rescale([second.quantity.scale / common]),
        ),
        operator_name(call) == "relax.subtract",
        fixed_point.rescale([common / (2**20 * goal.quantity.scale)]),
        goal.quantity.zero,
        goal.low,
        goal.high,
    )
    return View(reader.add(record, views, name, record.output_shape), order)


def _make(record: Addition, _: Target) -> Operator:
    def compute(a: Any, b: Any) -> Any:
        first = _scaled(a - record.zeros[0], record.factors[0])
        second = _scaled(b - record.zeros[1], record.factors[1])
        total = first - second if record.subtract else first + second
        return clamped(requantized(total, record.output) + record.output_zero, record.low, record.high)

    return binary("subtract_int8" if record.subtract else "add_int8", record.shapes, compute)


def _scaled(value: Any, factor: Rescale) -> Any:
    multiplier, shift = int(factor.multipliers[0]), int(factor.shifts[0])
    exponent = _ADDITION_SHIFT + shift - 1
    if multiplier == _EXACT_HALF and 0 <= exponent <= _ADDITION_SHIFT:
        return tirx.shift_left(value, constant(exponent))
    return requantized(tirx.shift_left(value, constant(_ADDITION_SHIFT)), factor)


OPERATOR = Int8Operator(Addition, _make, ("relax.add", "relax.subtract"), _recognise)
