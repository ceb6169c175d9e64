# SPDX-License-Identifier: Apache-2.0
"""Poolings, means and sums over dimensions, as the kernels round them."""

from typing import Any

import numpy as np
import tflite
from tvm import te, tirx

from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.exact import added, clamped, limits, number, rescaled_by, scale_of, zero_of
from utvm.compiler.tflite_kernel import Kernel, Use


def _average(use: Use, operands: list[Any]) -> Any:
    data, result = use.input(0), use.result
    if result.dtype not in ("int8", "int16", "uint8") or (result.dtype == "int8" and data.shape[0] == 1):
        return None
    options = use.options(tflite.Pool2DOptions)
    window, strides = (options.FilterHeight(), options.FilterWidth()), (options.StrideH(), options.StrideW())
    before = [
        0
        if options.Padding() == tflite.Padding.VALID
        else max((result.shape[1 + axis] - 1) * strides[axis] + window[axis] - data.shape[1 + axis], 0) // 2
        for axis in (0, 1)
    ]
    bounds = limits(options.FusedActivationFunction(), result)

    def compute(image: Any) -> Any:
        row, column = te.reduce_axis((0, window[0]), "row"), te.reduce_axis((0, window[1]), "column")

        def total(n: Any, y: Any, x: Any, c: Any) -> Any:
            line, at = y * strides[0] + row - before[0], x * strides[1] + column - before[1]
            inside = tirx.all(line >= 0, line < data.shape[1], at >= 0, at < data.shape[2])
            value = tirx.if_then_else(inside, image[n, line, at, c].astype("int32"), number(0))
            return te.sum(value, axis=[row, column])

        sums = te.compute(result.shape, total, "accumulator")

        def average(n: Any, y: Any, x: Any, c: Any) -> Any:
            sides = []
            for axis, index in enumerate((y, x)):
                first = index * strides[axis] - before[axis]
                end = tirx.min(first + window[axis], number(data.shape[1 + axis]))
                sides.append(end - tirx.max(first, number(0)))
            count, value = sides[0] * sides[1], sums[n, y, x, c]
            half = tirx.truncdiv(count, number(2))
            rounded = tirx.Select(value > number(0), value + half, value - half)
            return clamped(tirx.truncdiv(rounded, count), bounds, result.dtype)

        return te.compute(result.shape, average, "output")

    return added(use.builder, f"avg_pool2d_{result.dtype}", operands, compute)


def _reduce(use: Use, operands: list[Any]) -> Any:
    """Add a MEAN or SUM of int16."""
    data, result = use.input(0), use.result
    if result.dtype != "int16" or result.quantisation is None:
        return None
    rank = len(data.shape)
    axes = sorted({int(axis) % rank for axis in np.ravel(use.constant(1))})
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(data.shape))
    count = int(np.prod([data.shape[axis] for axis in axes], dtype=np.int64))
    multiplier, shift = fixed_point.quantize_multiplier(
        float(np.float64(scale_of(data)) / np.float64(scale_of(result)))
    )
    if use.operator.name == "MEAN":
        # One over the count becomes part of the multiplier, with as many bits as there is room for.
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << extra) // count, shift - extra

    def compute(tensor: Any) -> Any:
        loops = {axis: te.reduce_axis((0, data.shape[axis]), f"k{axis}") for axis in axes}

        def total(*at: Any) -> Any:
            place = tuple(loops.get(axis, index) for axis, index in enumerate(at))
            return te.sum(tensor[place].astype("int32"), axis=list(loops.values()))

        sums = te.compute(kept, total, "accumulator")

        def output(*at: Any) -> Any:
            value = sums[at] - zero_of(data) * count
            value = rescaled_by(value, number(multiplier), number(max(shift, 0)), max(-shift, 0))
            return clamped(value + zero_of(result), limits(0, result), "int16")

        return te.compute(kept, output, "output")

    return added(use.builder, f"{use.operator.name.lower()}_int16", operands[:1], compute)


KERNELS: dict[str, Kernel] = {"AVERAGE_POOL_2D": _average, "MEAN": _reduce, "SUM": _reduce}
