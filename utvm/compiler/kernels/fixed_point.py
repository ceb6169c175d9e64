# SPDX-License-Identifier: Apache-2.0
"""Fixed-point arithmetic of TFLite's int8 kernels (gemmlowp's ``fixedpoint.h``, ``quantization_util``)."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from utvm.compiler.kernels.records import Rescale

ONE = 2**31 - 1  # The fixed-point number nearest to 1 with 31 fractional bits.
_LOWEST = -(2**31)
_LARGEST_SHIFT = 30
NEWTON = (1515870810, -1010580540)
"""48/17 and -32/17 with 29 fractional bits: initial guess of 1 / d and its slope."""

_EXP_MINUS_EIGHTH, _ONE_THIRD = 1895147668, 715827883  # 31 fractional bits.
# Exponents from -2, and exp(-2^exponent) with 31 fractional bits.
_EXPONENTIALS = tuple(enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242), -2))


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Split a real number into a 31-bit fraction, magnitude in [1/2, 1), and a power of two."""
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
        np.array([multiplier for multiplier, _ in pairs], np.int32), np.array([shift for _, shift in pairs], np.int32)
    )


def multiply_high(a: int, b: int, bits: int = 32) -> int:
    """Return ``a * b / 2**(bits - 1)``, rounded half up, saturating."""
    return min((a * b + (1 << (bits - 2))) >> (bits - 1), (1 << (bits - 1)) - 1)


def divide_by_power(value: int, exponent: int) -> int:
    """Return ``value / 2**exponent``, rounded half away from zero."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if value < 0 else 0)
    return (value >> exponent) + (1 if value & mask > threshold else 0)


def requantize(value: int, multiplier: int, shift: int) -> int:
    """Return ``value * multiplier / 2**31 * 2**shift``, rounded twice, as the C helper of this name does."""
    return divide_by_power(multiply_high(value << max(shift, 0), multiplier), max(-shift, 0))


def bounds(sums: Sequence[int], multiplier: int, shift: int, limits: tuple[int, int, int]) -> tuple[int, int]:
    """Return the least and largest result of the least and largest sum; ``limits``: low, high, zero point."""
    low, high, zero = limits
    if max(map(abs, sums)) << max(shift, 0) >= -_LOWEST:
        if shift > 0:
            return low, high
        sums = (_LOWEST, ONE)  # The sum may wrap around.
    numbers = sorted(max(low, min(high, requantize(value, multiplier, shift) + zero)) for value in sums)
    return numbers[0], numbers[-1]


def input_radius(integer_bits: int, left_shift: int, total_bits: int = 31) -> int:
    """Return the largest difference that a left shift keeps within ``integer_bits``."""
    largest = ((1 << integer_bits) - 1) * (1 << (total_bits - integer_bits))
    return math.floor(largest / 2.0**left_shift)


def quantized_limit(real: float, scale: float, zero: int) -> int:
    """Quantise a real activation limit to int8, in single precision, rounded half away from zero."""
    quotient = float(np.float32(real) / np.float32(scale))
    nearest = math.floor(abs(quotient) + 0.5)
    return max(-128, min(127, zero + (nearest if quotient >= 0 else -nearest)))


def exp_of_negative(value: int, integer_bits: int) -> int:
    """Return e to a number in (-32, 0] with ``31 - integer_bits`` fractional bits; the result has 31."""
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
    """Return ``1 / (1 + value)`` for a number in [0, 1]; both have 31 fractional bits."""
    return _saturate(_newton(value) << 1)


def logistic(value: int) -> int:
    """Return the logistic function, with 31 fractional bits, of a number with 27."""
    if value == 0:
        return 2**30
    positive = reciprocal_of_one_plus(exp_of_negative(-abs(value), 4))
    return positive if value > 0 else ONE - positive


def tanh(value: int) -> int:
    """Return the hyperbolic tangent, with 31 fractional bits, of a number with 27."""
    if value == 0:
        return 0
    # tanh(x) = (1 - e) / (1 + e) with e = exp(-2x): doubling x keeps the bits and moves the point by one.
    magnitude = _saturate((_newton(exp_of_negative(-abs(value), 5)) - 2**29) << 2)
    return magnitude if value > 0 else -magnitude


def table_of(function: Callable[[int], int]) -> npt.NDArray[np.int8]:
    """Tabulate a function of int8: 256 results, clamped to int8, starting with -128."""
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
    half = (value + ONE + 1) // 2  # Half the denominator, rounded up.
    x = NEWTON[0] + multiply_high(half, NEWTON[1])
    for _ in range(3):
        error = 2**29 - multiply_high(half, x)
        x += _saturate(multiply_high(x, error) << 2)
    return x


def inverse_root(value: int) -> tuple[int, int]:
    """Return 1 / sqrt(value) as a 31-bit fraction and a power of two, by five Newton steps as in TFLite."""
    if value <= 1:
        return 2**31 - 1, 0
    pairs = (31 - value.bit_length()) // 2 - 1
    down = 11 - pairs
    half = divide_by_power((value << 2 * pairs) >> 1, 1)
    x = 1 << 28
    for _ in range(5):
        cube = _saturate(multiply_high(multiply_high(x, x), x) << 6)
        x = _saturate((multiply_high(3 << 27, x) - multiply_high(half, cube)) << 3)
    fraction = multiply_high(x, 1518500250)  # sqrt(2) / 2.
    return (fraction << -down, 0) if down < 0 else (fraction, -down)
