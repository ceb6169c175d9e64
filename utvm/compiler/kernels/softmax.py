# SPDX-License-Identifier: Apache-2.0
"""Softmax: int8 by a table of exponentials, int16 interpolated from two tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax, s_tir, te, tirx

from utvm.compiler.kernels import Kernel, Unfit, fixed_point, functions, quantities, records
from utvm.compiler.kernels.arithmetic import clamp_value, number, rescale_value
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.use import Use, scale_of, zero_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import operator_name
from utvm.errors import CompileError

_INTEGER_BITS = 5  # Of a scaled difference; exp(-32) counts as zero.
_SOFTMAX_8 = quantities.Quantity(1 / 256, -128)
_SUM_BITS = 12  # Integer bits of the sum of exponentials.
_LUT = 512  # Steps of a table over all 16-bit numbers.
_HINT = "the reference kernel supports nothing else; converters write this"


@dataclass(frozen=True)
class Softmax(records.Computation):
    """Softmax over the last dimension; ``exponentials``: 31 fractional bits, by distance below the maximum."""

    shape: tuple[int, ...]
    exponentials: records.Int32
    target: str = "int8"


def _recognise(reader: Reader, core: Any, goal: quantities.Goal, name: str) -> quantities.View | None:
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
    if int(call.attrs.axis) % len(real.view.shape) != len(real.view.shape) - 1:
        raise Unfit("softmax is supported in integers over the last dimension only")
    if goal.quantity != _SOFTMAX_8:
        raise Unfit("softmax is supported in integers with the scale 1/256 and the lowest number as 0 only")
    return quantities.View(_add(reader, real, beta, name))


def _add(reader: Reader, real: quantities.Real, beta: float, name: str, target: str = "int8") -> quantities.Value:
    data = reader.arrange(real.view)
    record = Softmax(data.shape, _exponentials(beta * real.quantity.scale), target)
    return reader.add(record, [data], name, data.shape, target)


def _tflite(use: Use, operands: list[Any]) -> Any:
    kinds = (use.dtype(), use.result.dtype)
    if kinds == ("int16", "int16"):
        return _of_int16(use, operands)
    if kinds[1] == "int16":
        _check_widening(use)
    elif not use.is_all("int8", "uint8"):
        return None
    elif use.goal().quantity != _SOFTMAX_8:
        raise Unfit("softmax is supported in integers with the scale 1/256 and the lowest number as 0 only")
    beta = float(use.options(tflite.SoftmaxOptions).Beta())

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> quantities.View | quantities.Value:
        value = _add(reader, use.real(reader, arguments), beta, name, "int16" if kinds[1] == "int16" else "int8")
        return value if kinds[1] == "int16" else quantities.View(value)

    return use.layer(build, operands, use.input(0).shape)


def _check_widening(use: Use) -> None:
    if use.dtype() != "int8":
        raise CompileError(f"from {use.dtype()} to int16 is not supported", _HINT)
    if abs(float(scale_of(use.result)) * 65536 - 1) > 1e-3 or zero_of(use.result) != -32768:
        raise CompileError("from 8 bits to 16 its result must have the scale 1/65536 and the zero point -32768", _HINT)


def _exponentials(scale: float) -> npt.NDArray[np.int32]:
    real = min(scale * 2 ** (31 - _INTEGER_BITS), 2**31 - 1.0)
    multiplier, shift = fixed_point.quantize_multiplier(real)
    count = min(fixed_point.input_radius(_INTEGER_BITS, shift), 255) + 1
    differences = [fixed_point.requantize(-below, multiplier, shift) for below in range(count)]
    return np.array([*(fixed_point.exp_of_negative(value, _INTEGER_BITS) for value in differences), 0], np.int32)


def _make(record: Softmax, _: Target | None) -> records.Operator:
    *outer, depth = record.shape
    info = np.iinfo(record.target)
    data = te.placeholder(record.shape, "int8", "data")
    table = te.placeholder(record.exponentials.shape, "int32", "exponentials")
    along = [te.reduce_axis((0, depth), name) for name in ("i", "j")]
    rows = tuple(outer) or (1,)

    def element(row: tuple[Any, ...], place: Any) -> Any:
        at = (*row[: len(outer)], place)
        return data[at].astype("int32")

    def exponential(row: tuple[Any, ...], place: Any) -> Any:
        below = largest[row] - element(row, place)
        return table[tirx.min(below, number(len(record.exponentials) - 1))]

    largest = te.compute(rows, lambda *row: te.max(element(row, along[0]), axis=along[0]), "largest")

    kind = "int32" if depth < 1 << _SUM_BITS else "int64"  # The kernel's own sums are no longer defined.

    def addend(row: tuple[Any, ...]) -> Any:
        value = exponential(row, along[1])
        bit = tirx.bitwise_and(tirx.shift_right(value, number(_SUM_BITS - 1)), number(1))
        return (tirx.shift_right(value, number(_SUM_BITS)) + bit).astype(kind)

    total = te.compute(rows, lambda *row: te.sum(addend(row), axis=along[1]), "total")

    def limit(row: tuple[Any, ...]) -> Any:
        return total[row] if kind == "int32" else tirx.min(total[row], number(2**31 - 1, kind)).astype("int32")

    bits = 31 + _SUM_BITS - info.bits

    def places(row: tuple[Any, ...]) -> Any:
        return tirx.call_pure_extern("int32", "leading_zeros", limit(row)) - bits

    def share(row: tuple[Any, ...]) -> Any:
        own = tirx.call_pure_extern("int32", "softmax_scale", limit(row))
        # A shift by more than 31 leaves less than half a step.
        return tirx.Select(places(row) < -31, number(0), own) if large else own

    large = depth >= 1 << 32 + _SUM_BITS - bits
    scale = te.compute(rows, lambda *row: share(row), "scale")
    shift = te.compute(rows, lambda *row: tirx.max(places(row), number(-31)) if large else places(row), "shift")

    def result(*at: Any) -> Any:
        row = at[:-1] or (number(0),)
        share = tirx.call_pure_extern("int32", "requantize", exponential(row, at[-1]), scale[row], shift[row])
        return tirx.min(share + int(info.min), number(int(info.max))).astype(record.target)

    output = te.compute(record.shape, result, "output")
    function = _schedule(te.create_prim_func([data, table, output]), len(outer))
    overlap: tuple[int | None, ...] = (0 if record.target == "int8" else None,)
    return records.Operator(functions.describe(function, f"softmax_{record.target}", overlap), (record.exponentials,))


def _schedule(function: Any, outer: int) -> Any:
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


def _of_int16(use: Use, operands: list[Any]) -> Any:
    if scale_of(use.result) != np.float32(1 / 32768) or zero_of(use.result):
        raise CompileError("in 16 bits its result must have the scale 1/32768 and the zero point 0", _HINT)
    beta = np.float64(np.float32(use.options(tflite.SoftmaxOptions).Beta()))
    real = float(np.float64(scale_of(use.input(0))) * beta / (10.0 / 65535.0))
    depth = use.result.shape[-1]
    rows = use.result.size // depth
    lowest = np.float32(np.float32(10.0 / 65535.0) * np.float32(-65535))
    powers = _lut(float(lowest), 0.0, lambda x: np.exp(x, dtype=np.float32))
    reciprocals = _lut(
        0.0, float(np.float32(np.float32(1 / 65535.0) * 65535)), lambda x: np.float32(1) / (np.float32(1) + x)
    )
    data = te.placeholder((rows, depth), "int16", "data")
    tables = [te.placeholder((_LUT + 1,), "int32", name) for name in ("exponentials", "reciprocals")]
    along = [te.reduce_axis((0, depth), name) for name in ("i", "j")]
    largest = te.compute((rows,), lambda row: te.max(data[row, along[0]].astype("int32"), axis=along[0]), "largest")

    def exponential(row: Any, place: Any) -> Any:
        below = rescale_value(data[row, place].astype("int32") - largest[row], real) + number(32767)
        return _look_up(tables[0], tirx.min(tirx.max(below, number(-32768)), number(32767)))

    shares = te.compute((rows, depth), exponential, "share")
    total = te.compute((rows,), lambda row: te.sum(shares[row, along[1]], axis=along[1]), "total")
    bits = te.compute((rows,), lambda row: count_bits(total[row]), "bits")

    def reciprocal(row: Any) -> Any:
        # Normalise to the highest bit at position 30; 16 bits stay.
        shift = number(31) - bits[row]
        shifted = tirx.shift_right(
            tirx.shift_left(total[row].astype("int64"), shift.astype("int64")) + number(1 << 13, "int64"),
            number(14, "int64"),
        )
        centred = shifted.astype("int32") - number((1 << 15) + (1 << 16))
        return _look_up(tables[1], tirx.min(tirx.max(centred, number(-32768)), number(32767)))

    inverse = te.compute((rows,), reciprocal, "inverse")

    def result(row: Any, place: Any) -> Any:
        right = (bits[row] - number(1)).astype("int64")
        one = number(1, "int64")
        half = tirx.shift_right(tirx.shift_left(one, right), one)
        product = shares[row, place].astype("int64") * inverse[row].astype("int64") + half
        return clamp_value(tirx.shift_right(product, right), 0, 32767, "int16")

    output = te.compute((rows, depth), result, "output")
    function = te.create_prim_func([data, *tables, output])
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, depth)))
    constants = [relax.const(table, "int32") for table in (powers, reciprocals)]
    function = functions.describe(function, "softmax_int16", [None] * 3)
    return relax.op.reshape(
        functions.call_function(use.builder, function, "softmax_int16", [flat, *constants]), use.result.shape
    )


def _lut(low: float, high: float, function: Any) -> npt.NDArray[np.int32]:
    """Tabulate a function over a range: 513 numbers, 15 fractional bits; interpolation errors are halved."""
    single = np.float32
    step = single(single(single(high) - single(low)) / single(_LUT))
    factor = single(65536) / single(single(2.0 / 65535.0) * single(65535))

    def real(place: Any) -> Any:
        return single(function(place))

    def whole(value: Any) -> Any:
        return single(math.copysign(math.floor(abs(float(value)) + 0.5), float(value)))

    entries = []
    for count in range(_LUT):
        start = single(single(low) + single(single(count) * step))
        middle = single(start + single(step / single(2)))
        end = single(single(low) + single(single(count + 1) * step))
        value = whole(real(start) * factor)
        between = whole(single(real(end) * factor + value) / single(2))
        bias = whole(single(between - whole(real(middle) * factor)) / single(2))
        entries.append(min(max(value - bias, -32768), 32767))
    entries.append(min(max(whole(real(single(high)) * factor), -32768), 32767))
    return np.array(entries, np.int32)


def _look_up(table: Any, value: Any) -> Any:
    index = number(256) + tirx.shift_right(value, number(7))
    index = tirx.max(tirx.min(index, number(_LUT - 1)), number(0))
    slope = table[index + number(1)] - table[index]
    rest = tirx.bitwise_and(value, number(127))
    return table[index] + tirx.shift_right(slope * rest + number(64), number(7))


def count_bits(value: Any) -> Any:
    """Return how many bits an int32 number that is not negative has."""
    count = number(0)
    for place in range(31):
        count = count + tirx.Select(value >= number(1 << place), number(1), number(0))
    return count


KERNEL = Kernel({Softmax: _make}, ("relax.nn.softmax",), _recognise, {"SOFTMAX": _tflite})
