# SPDX-License-Identifier: Apache-2.0
"""LOGISTIC and TANH of int16, between the entries of a table."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from utvm.compiler.kernels.arithmetic import number
from utvm.compiler.kernels.functions import add_function
from utvm.compiler.kernels.use import Use, scale_of, zero_of
from utvm.errors import CompileError

_STEPS = 24  # Entries of the sigmoid's table between two whole numbers.
_INTEGER_BITS = 3
_MOST_FACTOR = 1 << 16  # Times a number of 16 bits.


def sigmoid_table() -> npt.NDArray[np.int32]:
    """The logistic function from 0 to 10.6 with 16 fractional bits; errors between entries are halved."""

    def real(place: float) -> float:
        return 65536 / (1 + math.exp(-place / _STEPS))

    def entry(place: int) -> int:
        error = real(place + 0.5) - (real(place) + real(place + 1)) / 2
        return min(math.floor(real(place) + error / 2 + 0.5), 65535)

    return np.array([*(entry(place) for place in range(255)), 65535], np.int32)


def _input_factor(scale: np.float32, shifts: tuple[int, ...]) -> tuple[int, int]:
    mantissa, exponent = math.frexp(float(scale))
    shift = 15 - _INTEGER_BITS + exponent - 1
    if mantissa == 0.5 and shift in shifts:
        return 3 << shift, 0
    factor, places = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and places <= 30:
        places += 1
        factor *= 2.0
    return int(factor), places


def curve(use: Use, operands: list[Any]) -> Any:
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
        half = te.compute(shape, lambda *at: between(size[at], table, logistic), "curve")
        return te.compute(shape, lambda *at: mirror(value[at], half[at], logistic), "output")

    name = f"{use.operator.name.lower()}_int16"
    return add_function(use.builder, name, [operands[0], sigmoid_table()], compute, in_place=True)


def between(size: Any, table: Any, logistic: bool) -> Any:
    """LOGISTIC or TANH of a number that is not negative, unrounded."""
    # The table has an entry each 512 steps; tanh(x) is 2 sigmoid(2 x) - 1.
    bits = 9 if logistic else 8
    first = tirx.shift_right(size, number(bits))
    low, high = table[tirx.min(first, number(255))], table[tirx.min(first + number(1), number(255))]
    rest = tirx.bitwise_and(size, number((1 << bits) - 1))
    top = 0x7FFF << 10 if logistic else 0xFFFF << 8
    inside = tirx.shift_left(low, number(bits)) + rest * (high - low)
    return tirx.Select(first >= number(255), number(top), inside)


def mirror(value: Any, curve: Any, logistic: bool) -> Any:
    """LOGISTIC or TANH of a number, in 15 fractional bits."""
    if logistic:
        positive = curve + number(1 << 9)
        negative = number((1 << 25) + (1 << 9) - 1) - curve
    else:
        positive = curve - number(1 << 23) + number(1 << 7)
        negative = number(1 << 23) - curve + number((1 << 7) - 1)
    chosen = tirx.Select(value >= number(0), positive, negative)
    return tirx.shift_right(chosen, number(10 if logistic else 8)).astype("int16")
