"""Pooling and reductions of int8 numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm.compiler.integer.kernel import clamped, constant, described, elements, requantized, with_sum_in_place
from utvm.compiler.integer.records import Operator, Rescale

_UNROLLED = 16  # Elements of a window whose loads are written out one by one.


@dataclass(frozen=True)
class Pool:
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


@dataclass(frozen=True)
class Reduction:
    """The sum over some dimensions, rescaled: TensorFlow Lite's MEAN and SUM.

    Attributes:
        shape: of the input.
        axes: dimensions that are summed over, each once, in ascending order.
        bias: added to the sum.
        factor: rescaling of the sum.
        output_zero: zero point of the output.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    bias: int
    factor: Rescale
    output_zero: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The input's shape with 1 where it is summed over."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.shape))


def make_pool(record: Pool) -> Operator:
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
    overlap = (pool_overlap(record),)
    return Operator(described(function, name, overlap), (), overlap)


def _nearest(index: Any, extent: int, before: int, after: int) -> Any:
    if after:
        index = tirx.min(index, constant(extent - 1))
    return tirx.max(index, constant(0)) if before else index


def make_reduction(record: Reduction) -> Operator:
    """Make the operator of a sum or mean."""
    data = te.placeholder(record.shape, "int8", "data")
    axes = {axis: te.reduce_axis((0, record.shape[axis]), f"k{axis}") for axis in record.axes}

    def total(*at: Any) -> Any:
        place = tuple(axes.get(axis, index) for axis, index in enumerate(at))
        return te.sum(data[place].astype("int32"), axis=list(axes.values()))

    accumulator = te.compute(record.output_shape, total, "accumulator")
    output = te.compute(
        record.output_shape,
        lambda *at: clamped(
            requantized(accumulator[at] + record.bias, record.factor) + record.output_zero, -128, 127
        ),
        "output",
    )
    function = with_sum_in_place(te.create_prim_func([data, output]))
    overlap = (_overlap_of(_reduction_reads(record)),)
    return Operator(described(function, "reduce_int8", overlap), (), overlap)


def pool_overlap(record: Pool) -> int:
    """Return how many bytes before its input a pooling's output must begin for no number to be lost.

    The operator writes in ascending order. Before each pixel's first number is written, all numbers before it are
    written; what may still be read begins with the first number of this or a later window.
    """
    return _overlap_of(_pool_reads(record))


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


def _reduction_reads(record: Reduction) -> list[int]:
    offsets = np.arange(elements(record.shape)).reshape(record.shape)
    first = tuple(slice(0, 1) if axis in record.axes else slice(None) for axis in range(len(record.shape)))
    return [int(offset) for offset in offsets[first].ravel()]


def _overlap_of(reads: list[int]) -> int:
    """Return the overlap of a function that writes its output in order.

    Args:
        reads: for each output number, the lowest offset that it is made of.
    """
    overlap, lowest = 0, reads[-1]
    for number in range(len(reads) - 1, 0, -1):
        # When all output numbers before this one are written, this one and those behind it are still to be read.
        lowest = min(lowest, reads[number])
        overlap = max(overlap, number - lowest)
    return overlap


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
