# SPDX-License-Identifier: Apache-2.0
"""Softmax of int8 numbers, by a table of exponentials."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import s_tir, te, tirx

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import constant, described
from utvm.compiler.integer.quantities import Quantity, View
from utvm.compiler.integer.reader import Reader, operator_name
from utvm.compiler.integer.records import Computation, Int32, Operator
from utvm.compiler.integer.unfit import Unfit
from utvm.compiler.target import Target

_INTEGER_BITS = 5  # Of a scaled difference: exp(-32) is as good as nothing.
_SOFTMAX_8 = Quantity(1 / 256, -128)
SUM_BITS = 12
"""Integer bits of the sum of exponentials."""


@dataclass(frozen=True)
class Softmax(Computation):
    """Softmax over the last dimension, TensorFlow Lite's int8 arithmetic.

    Attributes:
        shape: of input and output.
        exponentials: 31 fractional bits; entry n is that of a number n below the largest one, and the last one,
            which is 0, is that of all numbers further below.
        target: element type of the output, int8 or int16; its lowest number is 0, and one more than its highest 1.
    """

    shape: tuple[int, ...]
    exponentials: Int32
    target: str = "int8"


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    if goal.is_limited:
        return None
    call = reader.call(core)
    source, beta = call.args[0], 1.0
    product = reader.call(source)
    if operator_name(product) == "relax.multiply":
        factor = reader.array(product.args[1])
        if factor is not None and factor.size == 1 and float(factor.ravel()[0]) > 0:
            source, beta = product.args[0], float(factor.ravel()[0])
    real = reader.real(source)
    if real is None:
        raise Unfit("its input is not a dequantised tensor with one scale")
    data = reader.arranged(real.view)
    if int(call.attrs.axis) % len(data.shape) != len(data.shape) - 1:
        raise Unfit("softmax is supported in integers over the last dimension only")
    if goal.quantity != _SOFTMAX_8:
        raise Unfit("softmax is supported in integers with the scale 1/256 and the lowest number as 0 only")
    record = Softmax(data.shape, exponentials(beta * real.quantity.scale))
    return View(reader.add(record, [data], name, data.shape))


def exponentials(scale: float) -> npt.NDArray[np.int32]:
    """Return the table of exponentials for int8 numbers of a scale, softmax's beta included."""
    real = min(scale * 2 ** (31 - _INTEGER_BITS), 2**31 - 1.0)
    multiplier, shift = fixed_point.quantize_multiplier(real)
    count = min(fixed_point.input_radius(_INTEGER_BITS, shift), 255) + 1
    differences = [fixed_point.requantize(-below, multiplier, shift) for below in range(count)]
    return np.array([*(fixed_point.exp_of_negative(value, _INTEGER_BITS) for value in differences), 0], np.int32)


def _make(record: Softmax, _: Target) -> Operator:
    """Make the operator of a softmax."""
    *outer, depth = record.shape
    info = np.iinfo(record.target)
    data = te.placeholder(record.shape, "int8", "data")
    table = te.placeholder(record.exponentials.shape, "int32", "exponentials")
    along = [te.reduce_axis((0, depth), name) for name in ("i", "j")]
    rows = tuple(outer) or (1,)

    def number(row: tuple[Any, ...], place: Any) -> Any:
        at = (*row[: len(outer)], place)
        return data[at].astype("int32")

    def exponential(row: tuple[Any, ...], place: Any) -> Any:
        below = largest[row] - number(row, place)
        return table[tirx.min(below, constant(len(record.exponentials) - 1))]

    largest = te.compute(rows, lambda *row: te.max(number(row, along[0]), axis=along[0]), "largest")

    def addend(row: tuple[Any, ...]) -> Any:
        """Return an exponential with the bits that the sum has room for; halves go up."""
        value = exponential(row, along[1])
        bit = tirx.bitwise_and(tirx.shift_right(value, constant(SUM_BITS - 1)), constant(1))
        return tirx.shift_right(value, constant(SUM_BITS)) + bit

    total = te.compute(rows, lambda *row: te.sum(addend(row), axis=along[1]), "total")
    scale = te.compute(rows, lambda *row: tirx.call_pure_extern("int32", "softmax_scale", total[row]), "scale")
    # The output has 8 or 16 fractional bits.
    bits = 31 + SUM_BITS - info.bits
    shift = te.compute(
        rows, lambda *row: tirx.call_pure_extern("int32", "leading_zeros", total[row]) - bits, "shift"
    )

    def result(*at: Any) -> Any:
        row = at[:-1] or (constant(0),)
        share = tirx.call_pure_extern("int32", "requantize", exponential(row, at[-1]), scale[row], shift[row])
        return tirx.min(share + int(info.min), constant(int(info.max))).astype(record.target)

    output = te.compute(record.shape, result, "output")
    function = _scheduled(te.create_prim_func([data, table, output]), len(outer))
    overlap: tuple[int | None, ...] = (0 if record.target == "int8" else None,)
    return Operator(described(function, f"softmax_{record.target}", overlap), (record.exponentials,), overlap)


def _scheduled(function: Any, outer: int) -> Any:
    """Compute row by row, what belongs to a row in local variables."""
    plan = s_tir.Schedule(function)
    names = ("shift", "scale", "total", "largest")
    if outer:
        row = plan.get_loops(plan.get_sblock("output"))[outer - 1]
        for name in names:
            plan.compute_at(plan.get_sblock(name), row)
    for name in names:
        plan.set_scope(plan.get_sblock(name), 0, "local")
    for name in ("total", "largest"):
        block = plan.get_sblock(name)
        plan.decompose_reduction(block, plan.get_loops(block)[-1])
    return plan.mod["main"]


OPERATOR = Int8Operator(Softmax, _make, ("relax.nn.softmax",), _recognise)
