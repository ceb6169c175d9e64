# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION of int8: one fixed-point inverse root for each row, as TensorFlow Lite Micro computes it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from utvm.compiler.kernels import Kernel, functions, softmax
from utvm.compiler.kernels.arithmetic import clamp_value, number, rescale_by
from utvm.compiler.kernels.use import Use, scale_of, zero_of

# tensorflow/lite/kernels/internal: common.h, GetInvSqrtQuantizedMultiplierExp; reference/integer_ops/
# l2normalization.h. Numbers of gemmlowp's FixedPoint<int32, 3> have 28 fractional bits.
_ONE, _HALF_THREE = 1 << 28, (1 << 28) + (1 << 27)
_HALF_ROOT_OF_TWO = 1518500250
_STEPS = 5
_FRACTION = 7  # Bits of the result's scale, 1/128.
_MOST = (1 << 31) - 1


def _normalise(use: Use, operands: list[Any]) -> Any:
    if not use.is_all("int8") or scale_of(use.result) != np.float32(1 / 128) or zero_of(use.result):
        return None
    depth, zero = use.result.shape[-1], zero_of(use.input(0))
    rows = use.result.size // depth
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, depth)))

    def squares(data: Any) -> Any:
        inner = te.reduce_axis((0, depth), "inner")

        def square(row: Any) -> Any:
            value = data[row, inner].astype("int32") - zero
            return te.sum(value * value, axis=inner)

        total = te.compute((rows,), square, "accumulator")
        return te.compute((rows,), lambda row: total[row] + number(0), "output")

    def scale(data: Any, multipliers: Any, shifts: Any) -> Any:
        def element(row: Any, place: Any) -> Any:
            value = rescale_by(data[row, place].astype("int32") - zero, multipliers[row], shifts[row])
            return clamp_value(value, -128, 127)

        return te.compute((rows, depth), element, "output")

    def add(name: str, compute: Callable[..., Any], *arguments: Any) -> Any:
        return functions.add_function(use.builder, f"l2_normalization_{name}", arguments, compute)

    sums = add("squares", squares, flat)
    result = add("int8", scale, flat, add("roots", _roots, sums), add("shifts", _shifts, sums))
    return relax.op.reshape(result, use.result.shape)


def _roots(sums: Any) -> Any:
    """Return 1 / sqrt of normalised sums, by Newton's iteration from 1, with 31 fractional bits."""
    shape = tuple(int(extent) for extent in sums.shape)

    def stage(name: str, compute: Any) -> Any:
        return te.compute(shape, compute, name)

    small = stage("small", lambda row: _small(sums[row]))
    value = stage(
        "value", lambda row: tirx.shift_right(tirx.shift_left(small[row], number(2) * _pairs(small[row])), number(1))
    )
    root = stage("one", lambda row: number(_ONE))
    for step in range(_STEPS):
        root = _better(stage, root, value, step)

    def result(row: Any) -> Any:
        own = _product(root[row], number(_HALF_ROOT_OF_TWO))
        own = tirx.shift_left(own, tirx.max(number(0) - _right(sums[row], small[row]), number(0)))
        return tirx.Select(sums[row] <= number(1), number(_MOST), own)

    return te.compute(shape, result, "output")


def _better(stage: Callable[..., Any], root: Any, value: Any, step: int) -> Any:
    cubes = stage(f"cube{step}", lambda row: _shift(_product(_product(root[row], root[row]), root[row]), 6))

    def compute(row: Any) -> Any:
        half = tirx.shift_right(value[row] + number(1), number(1))
        return _shift(_product(number(_HALF_THREE), root[row]) - _product(half, cubes[row]), 3)

    return stage(f"root{step}", compute)


def _shifts(sums: Any) -> Any:
    """Return the exponents that belong to :func:`_roots`, with the result's fraction."""

    def shift(row: Any) -> Any:
        right = tirx.max(_right(sums[row], _small(sums[row])), number(0))
        return number(_FRACTION) - tirx.Select(sums[row] <= number(1), number(0), right)

    return te.compute(tuple(int(extent) for extent in sums.shape), shift, "output")


def _small(total: Any) -> Any:
    """Return a sum, or a quarter of it, below 2 to the power of 29."""
    value = tirx.max(total, number(1))
    return tirx.Select(value >= number(1 << 29), tirx.shift_right(value, number(2)), value)


def _pairs(small: Any) -> Any:
    return tirx.shift_right(number(31) - softmax.count_bits(small), number(1)) - number(1)


def _right(total: Any, small: Any) -> Any:
    return number(11) + tirx.Select(total >= number(1 << 29), number(1), number(0)) - _pairs(small)


def _product(first: Any, second: Any) -> Any:
    """Return gemmlowp's saturating rounding doubling high product of numbers that are not negative."""
    product = first.astype("int64") * second.astype("int64") + number(1 << 30, "int64")
    return tirx.shift_right(product, number(31, "int64")).astype("int32")


def _shift(value: Any, bits: int) -> Any:
    wide = tirx.shift_left(value.astype("int64"), number(bits, "int64"))
    return tirx.min(wide, number(_MOST, "int64")).astype("int32")


KERNEL = Kernel(tflite={"L2_NORMALIZATION": _normalise})
