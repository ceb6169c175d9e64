# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic of TensorFlow Lite's int8 kernels, computed while compiling.

The functions are those of gemmlowp's ``fixedpoint.h`` and of TensorFlow Lite's ``quantization_util``: products are
rounded twice, to 32 bits and after the shift.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from utvm.compiler.kernels.records import Rescale

ONE = 2**31 - 1  # The fixed-point number nearest to 1 with 31 fractional bits.
_LOWEST = -(2**31)
_LARGEST_SHIFT = 30
NEWTON = (1515870810, -1010580540)
"""48/17 and -32/17 with 29 fractional bits: the first guess of 1 / d, and its slope."""

_EXP_MINUS_EIGHTH, _ONE_THIRD = 1895147668, 715827883  # With 31 fractional bits.
# Powers of e by -2^exponent, with 31 fractional bits.
_EXPONENTIALS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A real number as a 31-bit fraction, of a size in [1/2, 1), and a power of two."""
    if real < 0:
        multiplier, shift = quantize_multiplier(-real)
        return -multiplier, shift
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier //= 2
        shift += 1
    if shift < -31:
        return 0, 0
    return (multiplier, shift) if shift <= _LARGEST_SHIFT else (ONE, _LARGEST_SHIFT)


def rescale(reals: Sequence[float] | npt.NDArray[np.float64]) -> Rescale:
    pairs = [quantize_multiplier(float(real)) for real in reals]
    return Rescale(
        np.array([multiplier for multiplier, _ in pairs], np.int32),
        np.array([shift for _, shift in pairs], np.int32),
    )


def multiply_high(a: int, b: int, bits: int = 32) -> int:
    """``a * b / 2**(bits - 1)``, to the nearest, halves up; saturating."""
    return min((a * b + (1 << (bits - 2))) >> (bits - 1), (1 << (bits - 1)) - 1)


def divide_by_power(value: int, exponent: int) -> int:
    """``value / 2**exponent``, to the nearest, halves away from zero."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if value < 0 else 0)
    return (value >> exponent) + (1 if value & mask > threshold else 0)


def requantize(value: int, multiplier: int, shift: int) -> int:
    """``value * multiplier / 2**31 * 2**shift``, rounded twice, as the C helper of this name does."""
    return divide_by_power(multiply_high(value << max(shift, 0), multiplier), max(-shift, 0))


def input_radius(integer_bits: int, left_shift: int, total_bits: int = 31) -> int:
    """The largest difference that a shift to the left keeps within ``integer_bits``."""
    largest = ((1 << integer_bits) - 1) * (1 << (total_bits - integer_bits))
    return math.floor(largest / 2.0**left_shift)


def quantized_limit(real: float, scale: float, zero: int) -> int:
    """The int8 number of a real limit of an activation, in single precision, halves away from zero."""
    quotient = float(np.float32(real) / np.float32(scale))
    nearest = math.floor(abs(quotient) + 0.5)
    return max(-128, min(127, zero + (nearest if quotient >= 0 else -nearest)))


def exp_of_negative(value: int, integer_bits: int) -> int:
    """E to a number in (-32, 0] with ``31 - integer_bits`` fractional bits; the result has 31."""
    if value == 0:
        return ONE
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    within = (value & (quarter - 1)) - quarter
    result = _exp_of_small(within << integer_bits)
    remainder = within - value
    for exponent, factor in _EXPONENTIALS:
        if exponent < integer_bits and remainder & (1 << (fraction + exponent)):
            result = multiply_high(result, factor)
    return result


def reciprocal_of_one_plus(value: int) -> int:
    """``1 / (1 + value)`` for a number in [0, 1]; both with 31 fractional bits."""
    return _saturate(_newton(value) << 1)


def logistic(value: int) -> int:
    """The logistic function of a number with 27 fractional bits, with 31 of them."""
    if value == 0:
        return 2**30
    positive = reciprocal_of_one_plus(exp_of_negative(-abs(value), 4))
    return positive if value > 0 else ONE - positive


def tanh(value: int) -> int:
    """The hyperbolic tangent of a number with 27 fractional bits, with 31 of them."""
    if value == 0:
        return 0
    # tanh(x) = (1 - e) / (1 + e) with e = exp(-2x): twice the number is the same bits, read with one bit less.
    magnitude = _saturate((_newton(exp_of_negative(-abs(value), 5)) - 2**29) << 2)
    return magnitude if value > 0 else -magnitude


def table_of(function: Callable[[int], int]) -> npt.NDArray[np.int8]:
    """A function of one int8 number as 256 results, clamped to int8, that of -128 first."""
    return np.array([max(-128, min(127, function(value))) for value in range(-128, 128)], np.int8)


def _saturate(value: int) -> int:
    return max(_LOWEST, min(ONE, value))


def _exp_of_small(value: int) -> int:
    x = value + 2**28
    square = multiply_high(x, x)
    cube = multiply_high(square, x)
    fourth = multiply_high(square, square)
    higher = divide_by_power(multiply_high(divide_by_power(fourth, 2) + cube, _ONE_THIRD) + square, 1)
    return _EXP_MINUS_EIGHTH + multiply_high(_EXP_MINUS_EIGHTH, x + higher)


def _newton(value: int) -> int:
    half = (value + ONE + 1) // 2  # Of the denominator, rounded up.
    x = NEWTON[0] + multiply_high(half, NEWTON[1])
    for _ in range(3):
        error = 2**29 - multiply_high(half, x)
        x += _saturate(multiply_high(x, error) << 2)
    return x


def inverse_root(value: int) -> tuple[int, int]:
    """1 / sqrt(value) of a whole number as TensorFlow Lite's kernels do: 31-bit fraction, power of two.

    Five steps of Newton's method, ``x * (3 - value * x**2) / 2``, in numbers of three whole bits.
    """
    if value <= 1:
        return 2**31 - 1, 0
    pairs = (31 - value.bit_length()) // 2 - 1
    down = 11 - pairs
    half = divide_by_power((value << 2 * pairs) >> 1, 1)
    x = 1 << 28
    for _ in range(5):
        cube = _saturate(multiply_high(multiply_high(x, x), x) << 6)
        x = _saturate((multiply_high(3 << 27, x) - multiply_high(half, cube)) << 3)
    fraction = multiply_high(x, 1518500250)  # Half the root of two.
    return (fraction << -down, 0) if down < 0 else (fraction, -down)
