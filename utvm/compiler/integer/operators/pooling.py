# SPDX-License-Identifier: Apache-2.0
"""Poolings of int8 images: TensorFlow Lite's MAX_POOL_2D and AVERAGE_POOL_2D."""

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import clamped, constant, described, with_sum_in_place
from utvm.compiler.integer.operators.lookup import requantized
from utvm.compiler.integer.quantities import Real, View
from utvm.compiler.integer.reader import Reader
from utvm.compiler.integer.records import Computation, Operator
from utvm.compiler.integer.unfit import Unfit
from utvm.compiler.integer.windows import overlap_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import shape_of

_UNROLLED = 16  # Elements of a window whose loads are written out one by one.


@dataclass(frozen=True)
class Pool(Computation):
    """The average or the largest of the numbers in a window that lie inside the image.

    Attributes:
        input_shape: height, width, channels.
        window: rows, columns.
        strides: vertical, horizontal.
        padding: top, left, bottom, right.
        average: the average, halves away from zero; otherwise the largest.
        low, high: clamp of the output.
    """

    input_shape: tuple[int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    average: bool
    low: int = -128
    high: int = 127

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        height, width, channels = self.input_shape
        top, left, bottom, right = self.padding
        return (
            (height + top + bottom - self.window[0]) // self.strides[0] + 1,
            (width + left + right - self.window[1]) // self.strides[1] + 1,
            channels,
        )


def pool(reader: Reader, call: Any, view: View, shape: tuple[int, ...], name: str) -> View:
    """Add the node of a ``max_pool2d`` or ``avg_pool2d``; return its result as the model has it.

    Args:
        view: what is pooled.
        shape: of the result, as the model has it.
    """
    attributes = call.attrs
    layout = str(attributes.layout)
    if sorted(layout) != sorted("NHWC") or str(attributes.out_layout) != layout:
        raise Unfit(f"the data layout {layout} is not supported in integers")
    data = reader.arranged(view, [layout.index(letter) for letter in "NHWC"])
    batch, height, width, channels = data.shape
    average = str(call.op.name) == "relax.nn.avg_pool2d"
    padding = [int(each) for each in attributes.padding]
    if average and any(padding) and bool(attributes.count_include_pad):
        raise Unfit("an average that counts what is padded is not supported in integers")
    top, left, bottom, right = padding
    rows, columns = (int(each) for each in attributes.pool_size)
    down, across = (int(each) for each in attributes.strides)
    record = Pool((height, width, channels), (rows, columns), (down, across), (top, left, bottom, right), average)
    order = tuple("NHWC".index(letter) for letter in layout)
    output_shape = (1, *record.output_shape)
    if (
        batch != 1
        or any(int(each) != 1 for each in attributes.dilation)
        or shape != tuple(output_shape[axis] for axis in order)
    ):
        raise Unfit("pooling of several images, with gaps, or beyond the image is not supported in integers")
    return View(reader.add(record, [data], name, output_shape), None if layout == "NHWC" else order)


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    call = reader.call(core)
    real = reader.real(call.args[0])
    if real is None or goal.is_limited:
        return None
    if str(call.op.name) == "relax.nn.avg_pool2d" and real.quantity.scale > 1.01 * goal.quantity.scale:
        # It is rounded to a step of its numbers, which would be several of the result's.
        raise Unfit("an average whose result has finer steps than its numbers is not computed in integers")
    view = pool(reader, call, real.view, shape_of(core.ty), name)
    return requantized(reader, Real(view, real.quantity), goal.quantity, name)


def _make(record: Pool, _: Target) -> Operator:
    """Make the operator of a pooling. Its tensors are ``int8[1, H, W, C]``."""
    height, width, channels = record.input_shape
    data = te.placeholder((1, height, width, channels), "int8", "data")
    row, column = te.reduce_axis((0, record.window[0]), "row"), te.reduce_axis((0, record.window[1]), "column")
    top, left, bottom, right = record.padding
    padded = any(record.padding)

    def place(y: Any, x: Any) -> tuple[Any, Any]:
        return y * record.strides[0] + row - top, x * record.strides[1] + column - left

    def largest(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, at = place(y, x)
        if padded:
            # Outside the image the nearest number inside is read, which belongs to the same window.
            line = _nearest(line, height, top, bottom)
            at = _nearest(at, width, left, right)
        return te.max(data[n, line, at, c].astype("int32"), axis=[row, column])

    def total(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, at = place(y, x)
        value = data[n, line, at, c].astype("int32")
        if padded:
            inside = tirx.all(line >= 0, line < height, at >= 0, at < width)
            value = tirx.if_then_else(inside, value, constant(0))
        return te.sum(value, axis=[row, column])

    shape = (1, *record.output_shape)
    accumulator = te.compute(shape, total if record.average else largest, "accumulator")

    def result(n: Any, y: Any, x: Any, c: Any) -> Any:
        value = accumulator[n, y, x, c]
        if record.average:
            count = _count(record, y, x)
            half = tirx.truncdiv(count, constant(2))
            value = tirx.truncdiv(tirx.Select(value > 0, value + half, value - half), count)
        if (record.low, record.high) == (-128, 127):
            return value.astype("int8")
        return clamped(value, record.low, record.high)

    output = te.compute(shape, result, "output")
    function = with_sum_in_place(te.create_prim_func([data, output]), _UNROLLED)
    name = "avg_pool2d_int8" if record.average else "max_pool2d_int8"
    overlap = (_overlap(record),)
    return Operator(described(function, name, overlap), (), overlap)


def _nearest(index: Any, extent: int, before: int, after: int) -> Any:
    if after:
        index = tirx.min(index, constant(extent - 1))
    return tirx.max(index, constant(0)) if before else index


def _overlap(record: Pool) -> int:
    """Return how many bytes before its input a pooling's output must begin for no number to be lost.

    The operator writes in ascending order. Before each pixel's first number is written, all numbers before it are
    written; what may still be read begins with the first number of this or a later window.
    """
    return overlap_of(_pool_reads(record))


def _pool_reads(record: Pool) -> list[int]:
    """Return the lowest offset that each output number is made of, in the order of writing."""
    _, width, channels = record.input_shape
    output_height, output_width, _ = record.output_shape
    top, left, _, _ = record.padding
    return [
        (max(y * record.strides[0] - top, 0) * width + max(x * record.strides[1] - left, 0)) * channels + c
        for y in range(output_height)
        for x in range(output_width)
        for c in range(channels)
    ]


def _count(record: Pool, y: Any, x: Any) -> Any:
    """Return how many numbers of a window lie inside the image."""
    sides = []
    for index, extent, size, stride, before, after in (
        (y, record.input_shape[0], record.window[0], record.strides[0], record.padding[0], record.padding[2]),
        (x, record.input_shape[1], record.window[1], record.strides[1], record.padding[1], record.padding[3]),
    ):
        if not before and not after:
            sides.append(constant(size))
            continue
        first = index * stride - before
        sides.append(tirx.min(first + size, constant(extent)) - tirx.max(first, constant(0)))
    return sides[0] * sides[1]


OPERATOR = Int8Operator(Pool, _make, ("relax.nn.avg_pool2d",), _recognise)
