# SPDX-License-Identifier: Apache-2.0
"""Sums and means over dimensions of int8 tensors: TensorFlow Lite's SUM and MEAN."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import clamped, described, elements, requantized, with_sum_in_place
from utvm.compiler.integer.nodes import Native
from utvm.compiler.integer.quantities import Quantity, Real, View
from utvm.compiler.integer.reader import Reader, operator_name
from utvm.compiler.integer.records import Computation, Operator, Rescale
from utvm.compiler.integer.unfit import Unfit
from utvm.compiler.integer.windows import overlap_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import shape_of


@dataclass(frozen=True)
class Reduction(Computation):
    """The sum over some dimensions, rescaled: TensorFlow Lite's MEAN and SUM.

    Attributes:
        shape: of the input.
        axes: dimensions that are summed over, each once, in ascending order.
        bias: added to the sum.
        factor: rescaling of the sum.
        output_zero: zero point of the output.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    bias: int
    factor: Rescale
    output_zero: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The input's shape with 1 where it is summed over."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.shape))


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    call = reader.call(core)
    real = reader.real(call.args[0])
    if real is None or goal.is_limited:
        return None
    shape = shape_of(core.ty)
    if operator_name(call) == "relax.nn.adaptive_avg_pool2d":
        layout = str(call.attrs.layout)
        axes = sorted(layout.index(letter) for letter in "HW")
        if any(shape[axis] != 1 for axis in axes):
            raise Unfit("adaptive pooling is supported in integers for a single result only")
    else:
        rank = len(real.view.shape)
        every = call.attrs.axis is None
        axes = list(range(rank)) if every else sorted({int(axis) % rank for axis in call.attrs.axis})
    return _reduced(reader, axes, operator_name(call) != "relax.sum", real, goal.quantity, shape, name)


def _reduced(
    reader: Reader,
    axes: list[int],
    mean: bool,
    real: Real,
    target: Quantity,
    shape: tuple[int, ...],
    name: str,
) -> View:
    order = real.view.order
    base = real.view.base
    own = tuple(sorted(axes if order is None else (order[axis] for axis in axes)))
    count = int(np.prod([base.shape[axis] for axis in own], dtype=np.int64))
    multiplier, shift = fixed_point.quantize_multiplier(real.quantity.scale / target.scale)
    if mean:
        # One over the count becomes part of the multiplier, with as many bits as there is room for.
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << extra) // count, shift - extra
    factor = Rescale(np.array([multiplier], np.int32), np.array([shift], np.int32))
    record = Reduction(base.shape, own, -real.quantity.zero * count, factor, target.zero)
    view = View(reader.add(record, [base], name, record.output_shape), order)
    if view.shape == shape:
        return view
    flat = Native(lambda inputs: relax.op.reshape(inputs[0], shape), "relax.reshape")
    return View(reader.native(flat, [reader.arranged(view)], name, shape))


def _make(record: Reduction, _: Target) -> Operator:
    data = te.placeholder(record.shape, "int8", "data")
    axes = {axis: te.reduce_axis((0, record.shape[axis]), f"k{axis}") for axis in record.axes}

    def total(*at: Any) -> Any:
        place = tuple(axes.get(axis, index) for axis, index in enumerate(at))
        return te.sum(data[place].astype("int32"), axis=list(axes.values()))

    accumulator = te.compute(record.output_shape, total, "accumulator")
    output = te.compute(
        record.output_shape,
        lambda *at: clamped(
            requantized(accumulator[at] + record.bias, record.factor) + record.output_zero, -128, 127
        ),
        "output",
    )
    function = with_sum_in_place(te.create_prim_func([data, output]))
    overlap = (overlap_of(_reduction_reads(record)),)
    return Operator(described(function, "reduce_int8", overlap), (), overlap)


def _reduction_reads(record: Reduction) -> list[int]:
    offsets = np.arange(elements(record.shape)).reshape(record.shape)
    first = tuple(slice(0, 1) if axis in record.axes else slice(None) for axis in range(len(record.shape)))
    return [int(offset) for offset in offsets[first].ravel()]


OPERATOR = Int8Operator(Reduction, _make, ("relax.mean", "relax.sum", "relax.nn.adaptive_avg_pool2d"), _recognise)
