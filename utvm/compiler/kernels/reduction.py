# SPDX-License-Identifier: Apache-2.0
"""Sums and means over dimensions (TensorFlow Lite's SUM and MEAN, int8 and int16), minima and maxima."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import relax, te

from utvm.compiler.kernels import Kernel, Unfit, arithmetic, fixed_point, functions, quantities, records
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.use import Use, quantity
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import operator_name, shape_of


@dataclass(frozen=True)
class Reduction(records.Computation):
    """A rescaled sum over unique, ascending axes: TensorFlow Lite's MEAN and SUM."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    bias: int
    factor: records.Rescale
    output_zero: int
    dtype: str = "int8"

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The input's shape with 1 for each reduced dimension."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.shape))


def _recognise(reader: Reader, core: Any, goal: quantities.Goal, name: str) -> quantities.View | None:
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
    return _reduce(reader, axes, operator_name(call) != "relax.sum", real, goal.quantity, shape, name)


def _reduce(
    reader: Reader,
    axes: list[int],
    mean: bool,
    real: quantities.Real,
    target: quantities.Quantity,
    shape: tuple[int, ...],
    name: str,
    dtype: str = "int8",
) -> quantities.View:
    order = real.view.order
    base = real.view.base
    own = tuple(sorted(axes if order is None else (order[axis] for axis in axes)))
    count = int(np.prod([base.shape[axis] for axis in own], dtype=np.int64))
    multiplier, shift = fixed_point.quantize_multiplier(real.quantity.scale / target.scale)
    if mean:
        # 1 / count is merged into the multiplier, with as many bits as fit.
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << extra) // count, shift - extra
    factor = records.Rescale(np.array([multiplier], np.int32), np.array([shift], np.int32))
    record = Reduction(base.shape, own, -real.quantity.zero * count, factor, target.zero, dtype)
    view = quantities.View(reader.add(record, [base], name, record.output_shape, dtype), order)
    if view.shape == shape:
        return view
    flat = quantities.Native(lambda inputs: relax.op.reshape(inputs[0], shape), "relax.reshape")
    return quantities.View(reader.add(flat, [reader.arrange(view)], name, shape, dtype))


def _axes(use: Use) -> list[int]:
    rank = len(use.input(0).shape)
    return sorted({int(axis) % rank for axis in np.ravel(use.constant(1))})


def _tflite(use: Use, operands: list[Any]) -> Any:
    if not use.is_all("int8", "uint8", "int16"):
        return None
    axes, target = _axes(use), use.goal().quantity
    dtype = "int16" if use.dtype() == "int16" else "int8"

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> quantities.View:
        real = use.real(reader, arguments)
        return _reduce(reader, axes, use.operator.name == "MEAN", real, target, use.result.shape, name, dtype)

    shape = [extent for axis, extent in enumerate(use.input(0).shape) if axis not in axes]
    return use.layer(build, operands[:1], shape)


def _extreme(use: Use, operands: list[Any]) -> Any:
    if not use.is_all("int8", "uint8") or quantity(use.input(0)) != quantity(use.result):
        return None
    extreme = {"REDUCE_MAX": relax.op.max, "REDUCE_MIN": relax.op.min}[use.operator.name]
    return extreme(operands[0], _axes(use), use.options(tflite.ReducerOptions).KeepDims())


def _make(record: Reduction, _: Target | None) -> records.Operator:
    data = te.placeholder(record.shape, record.dtype, "data")
    axes = {axis: te.reduce_axis((0, record.shape[axis]), f"k{axis}") for axis in record.axes}

    def total(*at: Any) -> Any:
        place = tuple(axes.get(axis, index) for axis, index in enumerate(at))
        return te.sum(data[place].astype("int32"), axis=list(axes.values()))

    accumulator = te.compute(record.output_shape, total, "accumulator")
    info = np.iinfo(record.dtype)

    def result(*at: Any) -> Any:
        value = arithmetic.rescale_value(accumulator[at] + record.bias, record.factor) + record.output_zero
        return arithmetic.clamp_value(value, info.min, info.max, record.dtype)

    output = te.compute(record.output_shape, result, "output")
    function = functions.with_sum_in_place(te.create_prim_func([data, output]))
    overlap = (records.overlap_of(_reads(record)) * np.dtype(record.dtype).itemsize,)
    return records.Operator(functions.describe(function, f"reduce_{record.dtype}", overlap))


def _reads(record: Reduction) -> list[int]:
    offsets = np.arange(np.prod(record.shape, dtype=np.int64)).reshape(record.shape)
    first = tuple(slice(0, 1) if axis in record.axes else slice(None) for axis in range(len(record.shape)))
    return [int(offset) for offset in offsets[first].ravel()]


KERNEL = Kernel(
    {Reduction: _make},
    ("relax.mean", "relax.sum", "relax.nn.adaptive_avg_pool2d"),
    _recognise,
    {**dict.fromkeys(("MEAN", "SUM"), _tflite), **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), _extreme)},
)
