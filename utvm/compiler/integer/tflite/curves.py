# SPDX-License-Identifier: Apache-2.0
"""Functions of one number in 16 bits, between the entries of a table: LOGISTIC, TANH; SOFTMAX; and int8's DIV."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax, te, tirx

from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.exact import (
    added,
    broadcast,
    called,
    clamped,
    limits,
    number,
    rescaled,
    rescaled_by,
    scale_of,
    zero_of,
)
from utvm.compiler.integer.kernel import described
from utvm.compiler.integer.operators.softmax import SUM_BITS, exponentials
from utvm.compiler.tflite_kernel import Kernel, Use
from utvm.errors import CompileError

Array = npt.NDArray[Any]

_STEPS = 24  # Entries of the sigmoid's table between two whole numbers.
_INTEGER_BITS = 3
_MOST_FACTOR = 1 << 16  # Times a number of 16 bits.
_LUT = 512  # Steps of a table over all numbers of 16 bits.

_KERNEL = "the reference kernel takes nothing else; a converter writes it so"


def sigmoid_table() -> Array:
    """Return the logistic function from 0 to 10.6, with 16 fractional bits.

    Of the error of a line between two entries, each entry takes half. The last one is where the curve ends.
    """

    def real(place: float) -> float:
        return 65536 / (1 + math.exp(-place / _STEPS))

    def entry(place: int) -> int:
        error = real(place + 0.5) - (real(place) + real(place + 1)) / 2
        return min(math.floor(real(place) + error / 2 + 0.5), 65535)

    return np.array([*(entry(place) for place in range(255)), 65535], np.int32)


def _input_factor(scale: np.float32, shifts: tuple[int, ...]) -> tuple[int, int]:
    """Return by what the input is multiplied, and how far it is shifted to the right then.

    Args:
        shifts: of a scale that is a power of two, those that need no rounding.
    """
    mantissa, exponent = math.frexp(float(scale))
    shift = 15 - _INTEGER_BITS + exponent - 1
    if mantissa == 0.5 and shift in shifts:
        return 3 << shift, 0
    factor, places = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and places <= 30:
        places += 1
        factor *= 2.0
    return int(factor), places


def _curve(use: Use, operands: list[Any]) -> Any:
    """Add a LOGISTIC or TANH of int16."""
    if use.dtype() != "int16" or use.result.dtype != "int16":
        return None
    if scale_of(use.result) != np.float32(1 / 32768) or zero_of(use.result) or zero_of(use.input(0)):
        raise CompileError("in 16 bits its result must have the scale 1/32768, and no zero point may be but 0")
    logistic = use.operator.name == "LOGISTIC"
    factor, places = _input_factor(scale_of(use.input(0)), (0,) if logistic else (0, 1))
    if factor > _MOST_FACTOR:
        raise CompileError(
            f"the scale of its input, {scale_of(use.input(0))}, is more than a product of 32 bits holds"
        )

    def compute(data: Any, table: Any) -> Any:
        shape = use.result.shape
        rounding = number(1 << (places - 1) if places else 0)
        value = te.compute(
            shape,
            lambda *at: tirx.shift_right(data[at].astype("int32") * number(factor) + rounding, number(places)),
            "value",
        )
        size = te.compute(shape, lambda *at: tirx.max(value[at], number(0) - value[at]), "size")
        curve = te.compute(shape, lambda *at: between(size[at], table, logistic), "curve")
        return te.compute(shape, lambda *at: mirrored(value[at], curve[at], logistic), "output")

    name = f"{use.operator.name.lower()}_int16"
    return added(use.builder, name, [operands[0], sigmoid_table()], compute, in_place=True)


def between(size: Any, table: Any, logistic: bool) -> Any:
    """Return LOGISTIC or TANH of a number that is not negative, unrounded.

    Args:
        size: the number, as :func:`_input_factor` scales it.
        table: :func:`sigmoid_table`.
    """
    # The table has an entry each 512 steps; tanh(x) is 2 sigmoid(2 x) - 1.
    bits = 9 if logistic else 8
    first = tirx.shift_right(size, number(bits))
    low, high = table[tirx.min(first, number(255))], table[tirx.min(first + number(1), number(255))]
    rest = tirx.bitwise_and(size, number((1 << bits) - 1))
    top = 0x7FFF << 10 if logistic else 0xFFFF << 8
    inside = tirx.shift_left(low, number(bits)) + rest * (high - low)
    return tirx.Select(first >= number(255), number(top), inside)


def mirrored(value: Any, curve: Any, logistic: bool) -> Any:
    """Return LOGISTIC or TANH of a number, in 15 fractional bits.

    Args:
        curve: :func:`between` of its absolute value.
    """
    if logistic:
        positive = curve + number(1 << 9)
        negative = number((1 << 25) + (1 << 9) - 1) - curve
    else:
        positive = curve - number(1 << 23) + number(1 << 7)
        negative = number(1 << 23) - curve + number((1 << 7) - 1)
    chosen = tirx.Select(value >= number(0), positive, negative)
    return tirx.shift_right(chosen, number(10 if logistic else 8)).astype("int16")


def _lut(low: float, high: float, function: Any) -> Array:
    """Return a function over a range as 513 numbers with 15 fractional bits; errors between them are halved."""
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


def _looked_up(table: Any, value: Any) -> Any:
    """Return a table's function of a number of 16 bits, which is between two entries."""
    index = number(256) + tirx.shift_right(value, number(7))
    index = tirx.max(tirx.min(index, number(_LUT - 1)), number(0))
    slope = table[index + number(1)] - table[index]
    rest = tirx.bitwise_and(value, number(127))
    return table[index] + tirx.shift_right(slope * rest + number(64), number(7))


def _softmax(use: Use, operands: list[Any]) -> Any:
    """Add a SOFTMAX of int16, row by row: the largest, the exponentials' sum, its reciprocal, the shares."""
    if use.result.dtype != "int16":
        return None
    if use.dtype() != "int16":
        return _widening_softmax(use, operands)
    if scale_of(use.result) != np.float32(1 / 32768) or zero_of(use.result):
        raise CompileError("in 16 bits its result must have the scale 1/32768 and the zero point 0", _KERNEL)
    beta = np.float64(np.float32(use.options(tflite.SoftmaxOptions).Beta()))
    real = float(np.float64(scale_of(use.input(0))) * beta / (10.0 / 65535.0))
    depth = use.result.shape[-1]
    rows = use.result.size // depth
    lowest = np.float32(np.float32(10.0 / 65535.0) * np.float32(-65535))
    exponentials = _lut(float(lowest), 0.0, lambda x: np.exp(x, dtype=np.float32))
    reciprocals = _lut(
        0.0, float(np.float32(np.float32(1 / 65535.0) * 65535)), lambda x: np.float32(1) / (np.float32(1) + x)
    )
    data = te.placeholder((rows, depth), "int16", "data")
    tables = [te.placeholder((_LUT + 1,), "int32", name) for name in ("exponentials", "reciprocals")]
    along = [te.reduce_axis((0, depth), name) for name in ("i", "j")]
    largest = te.compute(
        (rows,), lambda row: te.max(data[row, along[0]].astype("int32"), axis=along[0]), "largest"
    )

    def exponential(row: Any, place: Any) -> Any:
        below = rescaled(data[row, place].astype("int32") - largest[row], real) + number(32767)
        return _looked_up(tables[0], tirx.min(tirx.max(below, number(-32768)), number(32767)))

    shares = te.compute((rows, depth), exponential, "share")
    total = te.compute((rows,), lambda row: te.sum(shares[row, along[1]], axis=along[1]), "total")
    bits = te.compute((rows,), lambda row: _bits(total[row]), "bits")

    def reciprocal(row: Any) -> Any:
        # With its highest bit in place 30, of which 16 stay.
        shift = number(31) - bits[row]
        shifted = tirx.shift_right(
            tirx.shift_left(total[row].astype("int64"), shift.astype("int64")) + number(1 << 13, "int64"),
            number(14, "int64"),
        )
        centred = shifted.astype("int32") - number((1 << 15) + (1 << 16))
        return _looked_up(tables[1], tirx.min(tirx.max(centred, number(-32768)), number(32767)))

    inverse = te.compute((rows,), reciprocal, "inverse")

    def result(row: Any, place: Any) -> Any:
        right = (bits[row] - number(1)).astype("int64")
        one = number(1, "int64")
        half = tirx.shift_right(tirx.shift_left(one, right), one)
        product = shares[row, place].astype("int64") * inverse[row].astype("int64") + half
        return clamped(tirx.shift_right(product, right), (0, 32767), "int16")

    output = te.compute((rows, depth), result, "output")
    function = te.create_prim_func([data, *tables, output])
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, depth)))
    constants = [relax.const(each, "int32") for each in (exponentials, reciprocals)]
    made = called(
        use.builder, described(function, "softmax_int16", [None] * 3), "softmax_int16", [flat, *constants]
    )
    return relax.op.reshape(made, use.result.shape)


def _widening_softmax(use: Use, operands: list[Any]) -> Any:
    """Add a SOFTMAX from int8 to int16: as in 8 bits, with 8 more of each share."""
    if use.dtype() != "int8":
        raise CompileError(f"from {use.dtype()} to int16 is not supported", _KERNEL)
    if abs(float(scale_of(use.result)) * 65536 - 1) > 1e-3 or zero_of(use.result) != -32768:
        raise CompileError(
            "from 8 bits to 16 its result must have the scale 1/65536 and the zero point -32768", _KERNEL
        )
    beta = np.float64(np.float32(use.options(tflite.SoftmaxOptions).Beta()))
    entries = exponentials(float(beta * np.float64(scale_of(use.input(0)))))
    depth = use.result.shape[-1]
    rows = use.result.size // depth
    data = te.placeholder((rows, depth), "int8", "data")
    table = te.placeholder(entries.shape, "int32", "exponentials")
    along = [te.reduce_axis((0, depth), name) for name in ("i", "j")]
    largest = te.compute(
        (rows,), lambda row: te.max(data[row, along[0]].astype("int32"), axis=along[0]), "largest"
    )

    def exponential(row: Any, place: Any) -> Any:
        below = largest[row] - data[row, place].astype("int32")
        return table[tirx.min(below, number(len(entries) - 1))]

    shares = te.compute((rows, depth), exponential, "share")
    places = number(SUM_BITS)

    def addend(row: Any) -> Any:
        value = shares[row, along[1]]
        half = tirx.bitwise_and(tirx.shift_right(value, places - number(1)), number(1))
        return tirx.shift_right(value, places) + half

    total = te.compute((rows,), lambda row: te.sum(addend(row), axis=along[1]), "total")
    zeros = te.compute((rows,), lambda row: number(32) - _bits(total[row]), "zeros")
    inverse = _reciprocals(total, zeros, rows)

    def result(row: Any, place: Any) -> Any:
        right = number(31 + SUM_BITS - 16) - zeros[row]
        share = rescaled_by(shares[row, place], inverse[row], number(0), right)
        return clamped(share - number(32768), (-32768, 32767), "int16")

    output = te.compute((rows, depth), result, "output")
    function = described(te.create_prim_func([data, table, output]), "softmax_int8_int16", [None] * 2)
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, depth)))
    made = called(use.builder, function, "softmax_int8_int16", [flat, relax.const(entries, "int32")])
    return relax.op.reshape(made, use.result.shape)


def _reciprocals(total: Any, zeros: Any, rows: int) -> Any:
    """Return 1 / total of each row, by gemmlowp's three steps of Newton's method; 31 fractional bits.

    Args:
        zeros: how many zeros each total begins with, of 32 bits.
    """
    wide = "int64"

    def high(a: Any, b: Any) -> Any:
        product = a.astype(wide) * b.astype(wide) + number(1 << 30, wide)
        return tirx.shift_right(product, number(31, wide)).astype("int32")

    def halved(row: Any) -> Any:
        # Of one and the fraction behind the highest bit, rounded up.
        whole = tirx.shift_left(total[row].astype(wide), zeros[row].astype(wide))
        return tirx.shift_right(whole, number(1, wide)).astype("int32")

    half = te.compute((rows,), halved, "half")
    guess, slope = (number(each) for each in fixed_point.NEWTON)

    def step(last: Any, name: str) -> Any:
        def better(row: Any) -> Any:
            return last[row] + number(4) * high(last[row], number(1 << 29) - high(half[row], last[row]))

        return te.compute((rows,), better, name)

    value = te.compute((rows,), lambda row: guess + high(half[row], slope), "guess")
    for count in range(3):
        value = step(value, f"step{count}")
    top = number(1 << 30)
    return te.compute(
        (rows,),
        lambda row: tirx.Select(value[row] >= top, number(2**31 - 1), tirx.min(value[row], top - 1) * number(2)),
        "inverse",
    )


def _bits(value: Any) -> Any:
    """Return how many bits a positive number of 31 bits has."""
    count = number(0)
    for place in range(31):
        count = count + tirx.Select(value >= number(1 << place), number(1), number(0))
    return count


def _divide(use: Use, operands: list[Any]) -> Any:
    """Add a DIV of int8: by the reciprocal of each number that a divisor can be."""
    if use.result.dtype != "int8" or use.result.quantisation is None:
        return None
    first, second = use.input(0), use.input(1)
    real = float(np.float64(scale_of(first)) / (np.float64(scale_of(second)) * np.float64(scale_of(use.result))))
    multiplier, shift = fixed_point.quantize_multiplier(real)
    sizes = range(256)
    lengths = np.array([max(size, 1).bit_length() for size in sizes], np.int32)
    inverses = [
        fixed_point.reciprocal_of_one_plus((max(size, 1) << (32 - max(size, 1).bit_length())) - 2**31)
        for size in sizes
    ]
    bounds = limits(use.options(tflite.DivOptions).FusedActivationFunction(), use.result)

    def compute(a: Any, b: Any, inverse: Any, length: Any) -> Any:
        shape = use.result.shape
        below = te.compute(shape, lambda *at: broadcast(b, at).astype("int32") - number(zero_of(second)), "below")
        size = te.compute(
            shape, lambda *at: tirx.min(tirx.max(below[at], number(0) - below[at]), number(255)), "size"
        )

        def numerator(*at: Any) -> Any:
            above = broadcast(a, at).astype("int32") - number(zero_of(first))
            return tirx.Select(below[at] < number(0), number(0) - above, above)

        value = te.compute(shape, numerator, "value")

        def free(*at: Any) -> Any:
            # As many bits as the numerator has room for, beside its sign.
            own = tirx.Select(value[at] < number(0), number(-1) - value[at], value[at])
            used = tirx.Select(own == number(0), number(0), length[tirx.min(own, number(255))])
            return number(31) - used

        room = te.compute(shape, free, "room")
        quotient = te.compute(
            shape, lambda *at: rescaled_by(value[at], inverse[size[at]], room[at], 0), "quotient"
        )
        # That has the room and the reciprocal's point too much.
        total = te.compute(shape, lambda *at: number(shift + 1) - length[size[at]] - room[at], "total")

        def output(*at: Any) -> Any:
            right = tirx.min(tirx.max(number(0) - total[at], number(0)), number(62))
            scaled = rescaled_by(quotient[at], number(multiplier), tirx.max(total[at], number(0)), right)
            return clamped(scaled + number(zero_of(use.result)), bounds, "int8")

        return te.compute(shape, output, "output")

    constants = [np.array(inverses, np.int32), lengths]
    return added(use.builder, "divide_int8", [*operands, *constants], compute)


KERNELS: dict[str, Kernel] = {"LOGISTIC": _curve, "TANH": _curve, "SOFTMAX": _softmax, "DIV": _divide}
