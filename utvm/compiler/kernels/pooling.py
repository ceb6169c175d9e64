# SPDX-License-Identifier: Apache-2.0
"""Image pooling: TensorFlow Lite's MAX_POOL_2D and AVERAGE_POOL_2D in int8, int16 and uint8."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import te, tirx

from utvm.compiler import target, tvm_types
from utvm.compiler.kernels import Kernel, Unfit, arithmetic, functions, lookup, quantities, records
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.use import Use, limits, padding_before

_UNROLLED = 16  # Unrolled loads of a window.


@dataclass(frozen=True)
class Pool(records.Computation):
    """Average or maximum over a window inside the image (NHWC); ``padding``: top, left, bottom, right."""

    input_shape: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    average: bool
    low: int = -128
    high: int = 127
    dtype: str = "int8"

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        images, height, width, channels = self.input_shape
        top, left, bottom, right = self.padding
        return (
            images,
            (height + top + bottom - self.window[0]) // self.strides[0] + 1,
            (width + left + right - self.window[1]) // self.strides[1] + 1,
            channels,
        )


def pool(reader: Reader, call: Any, view: quantities.View, shape: tuple[int, ...], name: str) -> quantities.View:
    """Add the node of Relax's ``max_pool2d`` or ``avg_pool2d``; returns the result in the model's layout."""
    attributes = call.attrs
    layout = str(attributes.layout)
    if sorted(layout) != sorted("NHWC") or str(attributes.out_layout) != layout:
        raise Unfit(f"the data layout {layout} is not supported in integers")
    data = reader.arrange(view, [layout.index(letter) for letter in "NHWC"])
    average = str(call.op.name) == "relax.nn.avg_pool2d"
    padding = [int(value) for value in attributes.padding]
    if average and any(padding) and bool(attributes.count_include_pad):
        raise Unfit("an average that includes padding is not supported in integers")
    top, left, bottom, right = padding
    rows, columns = (int(value) for value in attributes.pool_size)
    down, across = (int(value) for value in attributes.strides)
    record = Pool(_image(data.shape), (rows, columns), (down, across), (top, left, bottom, right), average)
    order = tuple("NHWC".index(letter) for letter in layout)
    output_shape = record.output_shape
    if (
        data.shape[0] != 1
        or any(int(step) != 1 for step in attributes.dilation)
        or shape != tuple(output_shape[axis] for axis in order)
    ):
        raise Unfit("pooling of several images, with gaps, or beyond the image is not supported in integers")
    return quantities.View(reader.add(record, [data], name, output_shape), None if layout == "NHWC" else order)


def _recognise(reader: Reader, core: Any, goal: quantities.Goal, name: str) -> quantities.View | None:
    call = reader.call(core)
    real = reader.real(call.args[0])
    if real is None or goal.is_limited:
        return None
    if str(call.op.name) == "relax.nn.avg_pool2d" and real.quantity.scale > 1.01 * goal.quantity.scale:
        # The average is rounded to a step of the input, which spans several steps of the result.
        raise Unfit("an average whose result has finer steps than its numbers is not computed in integers")
    view = pool(reader, call, real.view, tvm_types.shape_of(core.ty), name)
    return lookup.requantize_view(reader, quantities.Real(view, real.quantity), goal.quantity, name)


def _image(shape: Sequence[int]) -> tuple[int, int, int, int]:
    images, height, width, channels = shape
    return images, height, width, channels


def _tflite(use: Use, operands: list[Any]) -> Any:
    average = use.operator.name == "AVERAGE_POOL_2D"
    # TVM's tiles compute a 16-bit maximum in fewer instructions.
    if not use.is_all("int8", "uint8", *(["int16"] if average else [])):
        return None
    data, result, options = use.input(0), use.result, use.options(tflite.Pool2DOptions)
    window, strides = (options.FilterHeight(), options.FilterWidth()), (options.StrideH(), options.StrideW())
    top, bottom, left, right = (
        width
        for axis in (0, 1)
        for width in padding_before(
            options.Padding(), data.shape[1 + axis], window[axis], strides[axis], 1, result.shape[1 + axis]
        )
    )
    bounds = limits(options.FusedActivationFunction(), result)
    record = Pool(_image(data.shape), window, strides, (top, left, bottom, right), average, *bounds, dtype=result.dtype)

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> quantities.View | quantities.Value:
        value = reader.value(arguments[0])
        return reader.add(record, [value], name, record.output_shape, result.dtype)

    return use.layer(build, operands, record.output_shape)


def _make(record: Pool, _: target.Target | None) -> records.Operator:
    height, width = record.input_shape[1:3]
    data = te.placeholder(record.input_shape, record.dtype, "data")
    row, column = te.reduce_axis((0, record.window[0]), "row"), te.reduce_axis((0, record.window[1]), "column")
    top, left, bottom, right = record.padding
    padded = any(record.padding)

    def place(y: Any, x: Any) -> tuple[Any, Any]:
        return y * record.strides[0] + row - top, x * record.strides[1] + column - left

    def largest(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, at = place(y, x)
        if padded:
            # Outside the image, read the nearest number inside; it belongs to the same window.
            line = _nearest(line, height, top, bottom)
            at = _nearest(at, width, left, right)
        return te.max(data[n, line, at, c].astype("int32"), axis=[row, column])

    def total(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, at = place(y, x)
        value = data[n, line, at, c].astype("int32")
        if padded:
            inside = tirx.all(line >= 0, line < height, at >= 0, at < width)
            value = tirx.if_then_else(inside, value, arithmetic.number(0))
        return te.sum(value, axis=[row, column])

    shape = record.output_shape
    accumulator = te.compute(shape, total if record.average else largest, "accumulator")

    def result(n: Any, y: Any, x: Any, c: Any) -> Any:
        value = accumulator[n, y, x, c].astype("int32")
        if record.average:
            count = _count(record, y, x)
            half = tirx.truncdiv(count, arithmetic.number(2))
            value = tirx.truncdiv(tirx.Select(value > 0, value + half, value - half), count)
        info = np.iinfo(record.dtype)
        if (record.low, record.high) == (info.min, info.max):
            return value.astype(record.dtype)
        return arithmetic.clamp_value(value, record.low, record.high, record.dtype)

    output = te.compute(shape, result, "output")
    function = functions.with_sum_in_place(te.create_prim_func([data, output]), _UNROLLED)
    name = f"{'avg' if record.average else 'max'}_pool2d_{record.dtype}"
    # Numbers before a pixel's first one are written before it; pending reads begin at this window's first number.
    overlap = (records.overlap_of(_reads(record)) * np.dtype(record.dtype).itemsize,)
    return records.Operator(functions.describe(function, name, overlap))


def _nearest(index: Any, extent: int, before: int, after: int) -> Any:
    if after:
        index = tirx.min(index, arithmetic.number(extent - 1))
    return tirx.max(index, arithmetic.number(0)) if before else index


def _reads(record: Pool) -> list[int]:
    images, height, width, channels = record.input_shape
    _, output_height, output_width, _ = record.output_shape
    top, left, _, _ = record.padding
    rows = [max(y * record.strides[0] - top, 0) for y in range(output_height)]
    columns = [max(x * record.strides[1] - left, 0) for x in range(output_width)]
    return [
        ((n * height + row) * width + column) * channels + c
        for n in range(images)
        for row in rows
        for column in columns
        for c in range(channels)
    ]


def _count(record: Pool, y: Any, x: Any) -> Any:
    sides = []
    for index, extent, size, stride, before, after in (
        (y, record.input_shape[1], record.window[0], record.strides[0], record.padding[0], record.padding[2]),
        (x, record.input_shape[2], record.window[1], record.strides[1], record.padding[1], record.padding[3]),
    ):
        if not before and not after:
            sides.append(arithmetic.number(size))
            continue
        first = index * stride - before
        sides.append(tirx.min(first + size, arithmetic.number(extent)) - tirx.max(first, arithmetic.number(0)))
    return sides[0] * sides[1]


KERNEL = Kernel(
    {Pool: _make}, ("relax.nn.avg_pool2d",), _recognise, dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _tflite)
)
