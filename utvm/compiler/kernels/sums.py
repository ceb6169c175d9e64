# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's (transposed) convolutions and dense layers in int16, uint8, hybrid, and int8 batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax, te, tirx

from utvm.compiler.kernels import Kernel, fixed_point
from utvm.compiler.kernels.arithmetic import clamp_value, narrow_multiplier, number, rescale_by, rescale_wide
from utvm.compiler.kernels.functions import add_function
from utvm.compiler.kernels.hybrid import Quantised, hybrid_scales, is_hybrid, quantise_rows
from utvm.compiler.kernels.use import Use, activation_bounds, limits, padding_before, scale_of, zero_of
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.errors import CompileError

Array = npt.NDArray[Any]

_AXES = ("row", "column", "inner")


@dataclass(frozen=True)
class _Ending:
    """End of a sum: bias, rescaling, activation; ``data_zero`` returns the input's zero point of a batch."""

    tables: tuple[Any, ...]
    apply: Callable[[Any, Sequence[Any], Any, Any], Any]
    data_zero: Callable[[Sequence[Any], Any], Any]
    kind: str


def integer_ending(use: Use, reals: Array, bias: Array | None, wide: bool, activation: int) -> _Ending:
    bounds, dtype, zero = limits(activation, use.result), use.result.dtype, zero_of(use.result)
    kind = "int64" if wide else "int32"
    if wide:
        factors = np.array([narrow_multiplier(float(real)) for real in reals], np.int64).T.astype(np.int32)
        scaling = (factors[0], factors[1])
    else:
        rescale = fixed_point.rescale(reals)
        scaling = (rescale.multipliers, rescale.shifts)
    single = len(reals) == 1 and not wide
    tables = (*(() if single else scaling), *(() if bias is None else (bias.astype(kind),)))

    def apply(total: Any, read: Sequence[Any], channel: Any, _: Any) -> Any:
        if bias is not None:
            total = total + read[-1][channel]
        factor = [number(table[0]) if single else read[place][channel] for place, table in enumerate(scaling)]
        value = rescale_wide(total, *(part.astype("int64") for part in factor)) if wide else rescale_by(total, *factor)
        return clamp_value(value + zero, *bounds, dtype)

    data_zero = zero_of(use.input(2 if use.operator.name == "TRANSPOSE_CONV" else 0))
    return _Ending(tables, apply, lambda *_: data_zero, kind)


def hybrid_ending(use: Use, data: Quantised, channels: int, activation: int) -> _Ending:
    scales, bias = hybrid_scales(use), use.constant(2) if use.has(2) else None
    per_channel = scales.size == channels and use.operator.name not in ("FULLY_CONNECTED", "BATCH_MATMUL")
    tables = [np.broadcast_to(scales, (channels,)).astype(np.float32), data.scales]
    tables += [] if data.zeros is None else [data.zeros]
    tables += [] if bias is None else [bias.astype(np.float32)]

    def apply(total: Any, read: Sequence[Any], channel: Any, batch: Any) -> Any:
        own, step, real = read[0][channel], read[1][batch], total.astype("float32")
        # Multiply in the kernels' order.
        real = (real * own) * step if per_channel else real * (step * own)
        return clamp_float(real if bias is None else real + read[-1][channel], activation)

    def data_zero(read: Sequence[Any], batch: Any) -> Any:
        return number(0) if data.zeros is None else read[2][batch]

    return _Ending(tuple(tables), apply, data_zero, "int32")


def _layer_reals(data: TfliteTensor, weights: TfliteTensor, result: TfliteTensor, channels: int) -> Array:
    if weights.quantisation is None:
        raise CompileError(f"the weights {weights.name!r} have no scale")
    if weights.dtype == "uint8":
        return _one_real(data, weights, result, channels)
    scales = np.broadcast_to(weights.quantisation.scales.astype(np.float64), (channels,))
    reals: Array = np.float64(scale_of(data)) * scales / np.float64(scale_of(result))
    return reals


def _one_real(data: TfliteTensor, weights: TfliteTensor, result: TfliteTensor, channels: int) -> Array:
    return np.full(channels, np.float64(scale_of(data) * scale_of(weights)) / np.float64(scale_of(result)))


def _is_wide(data: TfliteTensor, bias: Array | None) -> bool:
    return data.dtype == "int16" and (bias is None or bias.dtype == np.int64)


def _is_ours(use: Use, data: int = 0, weights: int = 1) -> bool:
    return use.dtype(data) == "int16" and use.dtype(weights) == "int8" and use.result.dtype == "int16"


def _is_unsigned(use: Use) -> bool:
    return use.dtype(0) == use.dtype(1) == use.result.dtype == "uint8"


def convolution(use: Use, operands: list[Any]) -> Any:
    depthwise = use.operator.name == "DEPTHWISE_CONV_2D"
    options = use.options(tflite.DepthwiseConv2DOptions if depthwise else tflite.Conv2DOptions)
    axis = 3 if depthwise else 0
    if is_hybrid(use):
        return _hybrid_convolution(use, operands, options, axis)
    data, weights = use.input(0), use.input(1)
    several = data.shape[0] != 1 or (not depthwise and data.shape[3] != weights.shape[3])
    eight = several and use.dtype() == use.dtype(1) == use.result.dtype == "int8"
    if not (_is_ours(use) or _is_unsigned(use) or eight):
        return None
    return _integer_convolution(use, operands, options, axis)


def _integer_convolution(use: Use, operands: list[Any], options: Any, channel_axis: int) -> Any:
    data, weights = use.input(0), use.input(1)
    bias = use.constant(2) if use.has(2) else None
    reals = _layer_reals(data, weights, use.result, weights.shape[channel_axis])
    ending = integer_ending(use, reals, bias, _is_wide(data, bias), options.FusedActivationFunction())
    return _window(use, operands, options, channel_axis, ending)


def _hybrid_convolution(use: Use, operands: list[Any], options: Any, channel_axis: int) -> Any:
    data, channels = use.input(0), use.input(1).shape[channel_axis]
    per_channel = hybrid_scales(use).size == channels
    if channel_axis == 3 and not per_channel:
        raise CompileError("real numbers by weights with one scale for all channels are not supported")
    if channel_axis == 0 and use.input(1).shape[3] != data.shape[3]:
        raise CompileError("real numbers by weights of 8 bits in groups are not supported")
    rows = data.shape[0]
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, data.size // rows)))
    own = quantise_rows(use, flat, rows, data.size // rows, symmetric=not per_channel)
    image = use.builder.emit(relax.op.reshape(own.numbers, data.shape))
    ending = hybrid_ending(use, own, channels, options.FusedActivationFunction())
    return _window(use, [image, operands[1]], options, channel_axis, ending)


def window_sums(
    image: Any,
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    before: Sequence[int],
    factor: Callable[[Any, Any, Any, Any], Any],
    channel: Callable[[Any, Any], Any],
    zero: Callable[[Any], Any],
    kind: str = "int32",
) -> Any:
    row, column, inner = (te.reduce_axis((0, int(extent)), name) for extent, name in zip(window, _AXES, strict=True))
    _, height, width, _ = (int(extent) for extent in image.shape)
    ends = [
        (shape[1 + axis] - 1) * strides[axis] + (window[axis] - 1) * dilation[axis] - before[axis] for axis in (0, 1)
    ]
    padded = any(before) or ends[0] >= height or ends[1] >= width

    def total(n: Any, y: Any, x: Any, c: Any) -> Any:
        line = y * strides[0] + row * dilation[0] - before[0]
        at = x * strides[1] + column * dilation[1] - before[1]
        value = image[n, line, at, channel(c, inner)].astype("int32") - zero(n)
        inside = tirx.all(line >= 0, line < height, at >= 0, at < width)
        value = tirx.if_then_else(inside, value, number(0)) if padded else value
        return te.sum((value * factor(c, row, column, inner)).astype(kind), axis=[row, column, inner])

    return te.compute(tuple(shape), total, "accumulator")


def _window(use: Use, operands: list[Any], options: Any, channel_axis: int, ending: _Ending) -> Any:
    data, weights, result = use.input(0), use.input(1), use.result
    depthwise = channel_axis == 3
    channels, depth = weights.shape[channel_axis], 1 if depthwise else weights.shape[3]
    strides = (options.StrideH(), options.StrideW())
    dilation = (options.DilationHFactor(), options.DilationWFactor())
    before = [
        padding_before(
            options.Padding(), data.shape[1 + axis], weights.shape[1 + axis], strides[axis], dilation[axis],
            result.shape[1 + axis],
        )[0]
        for axis in (0, 1)
    ]  # fmt: skip
    channels_per_group = max(channels // (data.shape[3] // depth), 1)
    # The kernels of signed weights ignore their zero point.
    zero = zero_of(weights) if weights.dtype == "uint8" else 0

    def compute(image: Any, filters: Any, *tables: Any) -> Any:
        def factor(c: Any, row: Any, column: Any, inner: Any) -> Any:
            weight = filters[0, row, column, c] if depthwise else filters[c, row, column, inner]
            return weight.astype("int32") - zero

        sums = window_sums(
            image, result.shape, (*weights.shape[1:3], depth), strides, dilation, before, factor,
            lambda c, inner: tirx.floordiv(c, channels_per_group) * depth + inner,
            lambda n: ending.data_zero(tables, n), ending.kind,
        )  # fmt: skip
        return te.compute(result.shape, lambda n, y, x, c: ending.apply(sums[n, y, x, c], tables, c, n), "output")

    macs = result.size * weights.shape[1] * weights.shape[2] * depth
    kind = "hybrid" if data.dtype == "float32" else data.dtype
    name = f"{'depthwise_' if depthwise else ''}conv2d_{kind}"
    return add_function(use.builder, name, [*operands[:2], *ending.tables], compute, macs=macs)


def dense(use: Use, operands: list[Any]) -> Any:
    hybrid = is_hybrid(use)
    eight = use.dtype() == use.dtype(1) == use.result.dtype == "int8" and zero_of(use.input(1)) != 0
    if not (hybrid or eight or _is_ours(use) or _is_unsigned(use)):
        return None
    data, weights, result = use.input(0), use.input(1), use.result
    outputs, depth = weights.shape
    rows = data.size // max(depth, 1)
    if rows * depth != data.size or rows * outputs != result.size:
        raise CompileError(f"{data.shape} inputs for {depth} weights")
    flat = use.builder.emit(relax.op.reshape(operands[0], (rows, depth)))
    options = use.options(tflite.FullyConnectedOptions)
    if hybrid:
        own = quantise_rows(use, flat, rows, depth, symmetric=not options.AsymmetricQuantizeInputs())
        flat, ending = own.numbers, hybrid_ending(use, own, outputs, options.FusedActivationFunction())
    else:
        ending = _dense_ending(use, outputs, options.FusedActivationFunction())

    def compute(vectors: Any, filters: Any, *tables: Any) -> Any:
        inner = te.reduce_axis((0, depth), "inner")

        def total(row: Any, unit: Any) -> Any:
            value = vectors[row, inner].astype("int32") - ending.data_zero(tables, row)
            factor = filters[unit, inner].astype("int32") - zero_of(weights)
            return te.sum((value * factor).astype(ending.kind), axis=[inner])

        sums = te.compute((rows, outputs), total, "accumulator")
        return te.compute((rows, outputs), lambda row, unit: ending.apply(sums[row, unit], tables, unit, row), "output")

    name = f"dense_{'hybrid' if hybrid else data.dtype}"
    product = add_function(use.builder, name, [flat, operands[1], *ending.tables], compute, macs=rows * outputs * depth)
    return relax.op.reshape(product, result.shape)


def _dense_ending(use: Use, outputs: int, activation: int) -> _Ending:
    data, weights, result = use.input(0), use.input(1), use.result
    known = weights.quantisation
    if known is None:
        raise CompileError(f"the weights {weights.name!r} have no scale")
    if known.scales.size == 1:
        reals = _one_real(data, weights, result, outputs)
    else:
        reals = _layer_reals(data, weights, result, outputs)
    bias = use.constant(2) if use.has(2) else None
    return integer_ending(use, reals, bias, _is_wide(data, bias), activation)


def _transposed_convolution(use: Use, operands: list[Any]) -> Any:
    weights, data, result = use.input(1), use.input(2), use.result
    options = use.options(tflite.TransposeConvOptions)
    strides = (options.StrideH(), options.StrideW())
    channels, rows, columns, depth = weights.shape
    before = [
        padding_before(
            options.Padding(), result.shape[1 + axis], (rows, columns)[axis], strides[axis], 1, data.shape[1 + axis]
        )[0]
        for axis in (0, 1)
    ]
    real = data.dtype == "float32"
    wide = data.dtype == "int16"
    kind = "float32" if real else "int64" if wide else "int32"
    if data.dtype not in ("float32", "int8", "int16") or use.dtype(1) != ("float32" if real else "int8"):
        raise CompileError(f"{data.dtype} by {use.dtype(1)} is not supported")
    bias = use.constant(3) if use.has(3) else None
    activation = options.FusedActivationFunction()
    if real:
        ending = float_ending(bias, activation)
    else:
        ending = integer_ending(use, _layer_reals(data, weights, result, channels), bias, wide, activation)

    def compute(image: Any, filters: Any, *tables: Any) -> Any:
        row, column = te.reduce_axis((0, rows), "row"), te.reduce_axis((0, columns), "column")
        inner = te.reduce_axis((0, depth), "inner")

        def total(n: Any, y: Any, x: Any, c: Any) -> Any:
            # Later rows of a window belong to earlier numbers: the kernel's order of additions.
            down, across = number(rows - 1) - row, number(columns - 1) - column
            line, at = y + before[0] - down, x + before[1] - across
            inside = tirx.all(
                line >= 0, at >= 0, line < data.shape[1] * strides[0], at < data.shape[2] * strides[1],
                tirx.floormod(line, strides[0]) == 0, tirx.floormod(at, strides[1]) == 0,
            )  # fmt: skip
            value = image[n, tirx.floordiv(line, strides[0]), tirx.floordiv(at, strides[1]), inner]
            factor = filters[c, down, across, inner]
            if not real:
                value, factor = value.astype("int32") - zero_of(data), factor.astype("int32")
            product = (value * factor).astype(kind)
            return te.sum(tirx.if_then_else(inside, product, tirx.const(0, kind)), axis=[row, column, inner])

        sums = te.compute(result.shape, total, "accumulator")
        return te.compute(result.shape, lambda n, y, x, c: ending.apply(sums[n, y, x, c], tables, c, n), "output")

    macs = data.size * rows * columns * channels
    name = f"conv2d_transpose_{data.dtype}"
    return add_function(use.builder, name, [operands[2], operands[1], *ending.tables], compute, macs=macs)


def float_ending(bias: Array | None, activation: int) -> _Ending:
    def apply(total: Any, tables: Sequence[Any], channel: Any, _: Any) -> Any:
        return clamp_float(total if bias is None else total + tables[0][channel], activation)

    return _Ending(() if bias is None else (bias.astype(np.float32),), apply, lambda *_: 0, "float32")


def clamp_float(value: Any, activation: int) -> Any:
    low, high = activation_bounds(activation)
    value = value if math.isinf(high) else tirx.min(value, tirx.FloatImm("float32", high))
    return value if math.isinf(low) else tirx.max(value, tirx.FloatImm("float32", low))


KERNEL = Kernel(tflite={"TRANSPOSE_CONV": _transposed_convolution})
