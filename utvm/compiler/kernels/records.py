# SPDX-License-Identifier: Apache-2.0
"""Integer computations as records; kernels make functions of them. Tensors are NHWC, weights symmetric."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from utvm.compiler.library import HERE, image_shape

_DIMENSIONS = "x"

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]


class Computation:
    """The computation of an operator; each kernel defines its own."""


@dataclass(frozen=True)
class Rescale:
    """Product ``value * multiplier / 2**31 * 2**shift``, one or per output channel, rounded as TFLite does."""

    multipliers: Int32
    shifts: Int32


@dataclass(frozen=True)
class Residual:
    """TFLite's ADD fused behind a convolution: operands are ``(value - zero) << 20``, rescaled.

    ``result_*`` describes the operand that is the convolution's own result.
    """

    result_zero: int
    other_zero: int
    result: Rescale
    other: Rescale
    output: Rescale
    output_zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Convolution(Computation):
    """An int8 convolution, depthwise convolution or dense layer (1x1 on a 1x1 image), with TFLite's semantics.

    Attributes:
        input_shape: height, width, channels.
        weights: int8. OHWI, or for a depthwise convolution (channels * multiplier, height, width, 1).
        padding: top, left, bottom, right, with the input's zero point.
        depthwise: output channel o reads input channel o // (outputs // inputs) only.
        residual: a fused addition; its other operand is a second input of the output's shape.
        whole_rows: of a strip, the output rows of the whole image, on which the choice of kernels depends; else 0.
    """

    input_shape: tuple[int, int, int]
    weights: Int8
    bias: Int32
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    depthwise: bool
    input_zero: int
    output_zero: int
    rescale: Rescale
    low: int
    high: int
    residual: Residual | None = None
    whole_rows: int = 0

    @property
    def pixels(self) -> int:
        """Output pixels of the whole image."""
        return (self.whole_rows or self.output_shape[0]) * self.output_shape[1]

    def input_rows(self, first: int, rows: int) -> tuple[int, int]:
        """Return the range of input rows that some output rows read."""
        height, begin = self.input_shape[0], first * self.strides[0] - self.padding[0]
        return min(max(begin, 0), height), max(min(begin + self._reach(rows), height), 0)

    def strip(self, first: int, rows: int) -> "Convolution":
        """Return the convolution of some output rows, which reads :meth:`input_rows`."""
        low, high = self.input_rows(first, rows)
        above = max(0, self.padding[0] - first * self.strides[0])
        below = self._reach(rows) - above - (high - low)
        shape, padding = (high - low, *self.input_shape[1:]), (above, self.padding[1], below, self.padding[3])
        return replace(self, input_shape=shape, padding=padding, whole_rows=self.output_shape[0])

    def _reach(self, rows: int) -> int:
        return (rows - 1) * self.strides[0] + (int(self.weights.shape[1]) - 1) * self.dilation[0] + 1

    @property
    def output_shape(self) -> tuple[int, int, int]:
        height, width, _ = self.input_shape
        channels, rows, columns, _ = self.weights.shape
        top, left, bottom, right = self.padding
        return (
            (height + top + bottom - (rows - 1) * self.dilation[0] - 1) // self.strides[0] + 1,
            (width + left + right - (columns - 1) * self.dilation[1] - 1) // self.strides[1] + 1,
            int(channels),
        )

    @property
    def layer(self) -> str:
        """Tuning key of all convolutions of this geometry."""
        kernel, strides, dilation = self.weights.shape[1:3], self.strides, self.dilation
        parts = [self.input_shape, self.output_shape, kernel, strides, dilation, self.padding]
        spelled = [_DIMENSIONS.join(map(str, part)) for part in parts]
        name = "depthwise_conv2d_int8" if self.depthwise else "conv2d_int8"
        words = zip(("", "to ", "kernel ", "strides ", "dilation ", "padding "), spelled, strict=True)
        return f"{name} {' '.join(word + part for word, part in words)}{' add' if self.residual else ''}"

    @property
    def macs(self) -> int:
        height, width, _ = self.output_shape
        return height * width * int(self.weights.size)


@dataclass(frozen=True)
class Unary(Computation):
    """A function of one number, of ``operand_bytes``, to one byte; methods as of :class:`Convolution`, for images."""

    shape: tuple[int, ...]
    operand_bytes: ClassVar[int] = 1
    padding: ClassVar[tuple[int, ...]] = ()
    residual: ClassVar[None] = None

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Height, width, and bytes of a pixel."""
        height, width, channels = self.output_shape
        return height, width, channels * self.operand_bytes

    @property
    def output_shape(self) -> tuple[int, int, int]:
        return image_shape(self.shape)

    def input_rows(self, first: int, rows: int) -> tuple[int, int]:
        return first, first + rows

    def strip(self, _: int, rows: int) -> "Unary":
        return replace(self, shape=(rows, *self.output_shape[1:]))


class InputRows(Unary):
    """An image that the application hands over by rows, as a layer without operands; ``shape`` is in bytes."""


@dataclass(frozen=True)
class Operator:
    """A schedulable ``tirx.PrimFunc`` of one int8 operator (inputs, constants, output), and its constants."""

    function: Any
    constants: tuple[npt.NDArray[Any], ...] = ()


@dataclass(frozen=True)
class Ready(Computation):
    """A computation with an existing function."""

    operator: Operator


def simplify(record: Convolution) -> Convolution:
    """Return an equal convolution without taps that only read padding; an image of one column becomes a row."""
    if record.whole_rows:
        return record  # Strips share their constants.
    record = _along(_along(record, 0), 1)
    (height, width, channels), (outputs, rows, columns, depth) = record.input_shape, record.weights.shape
    top, left, bottom, right = record.padding
    if width > 1 or columns > 1 or left or right or height == 1:
        return record
    return replace(
        record,
        input_shape=(1, height, channels),
        weights=record.weights.reshape(outputs, 1, rows, depth),
        strides=(1, record.strides[0]),
        dilation=(1, record.dilation[0]),
        padding=(0, top, 0, bottom),
    )


def _along(record: Convolution, axis: int) -> Convolution:
    extent, before, taps = record.input_shape[axis], record.padding[axis], record.weights.shape[1 + axis]
    stride, step, results = record.strides[axis], record.dilation[axis], record.output_shape[axis]
    read = [
        any(0 <= result * stride - before + tap * step < extent for result in range(results)) for tap in range(taps)
    ]
    if all(read) or not any(read):
        return record
    first, end = read.index(True), taps - read[::-1].index(True)
    first = min(first, before // step)
    begin = before - first * step
    behind = max(0, (results - 1) * stride + (end - first - 1) * step + 1 - extent - begin)
    top, left, bottom, right = record.padding
    padding = (begin, left, behind, right) if axis == 0 else (top, begin, bottom, behind)
    weights = record.weights.take(range(first, end), axis=1 + axis)
    shorter = replace(record, weights=np.ascontiguousarray(weights), padding=padding)
    return shorter if shorter.output_shape == record.output_shape else record


def distance(record: Convolution, pixels: int, *, reads_again: bool = False) -> int:
    """Return how many bytes the output must begin before the input for the two to share memory.

    A tile of ``pixels`` reads all its input, then writes; ``reads_again`` if a pixel is partly written before.
    """
    height, width, channels = record.input_shape
    rows_out, columns_out, outputs = record.output_shape
    _, rows, columns, _ = record.weights.shape
    top, left, _, _ = record.padding
    y = np.arange(rows_out)[:, None] * record.strides[0] - top + np.arange(rows)[None] * record.dilation[0]
    x = np.arange(columns_out)[:, None] * record.strides[1] - left + np.arange(columns)[None] * record.dilation[1]
    nothing = height * width
    first_row = np.where((y >= 0) & (y < height), y, nothing).min(axis=1)
    first_column = np.where((x >= 0) & (x < width), x, nothing).min(axis=1)
    lowest = np.minimum(first_row[:, None] * width + first_column[None], nothing).ravel() * channels
    # Lowest offset read from a pixel onwards, not only by it.
    lowest = np.minimum.accumulate(lowest[::-1])[::-1]
    starts = np.arange(0, len(lowest), pixels)
    ends = np.minimum(starts + pixels, len(lowest))
    if not reads_again:
        # A tile's writes must not hit what later tiles read.
        starts, ends = starts[1:], ends[:-1]
    return int(max([0, *(ends * outputs - lowest[starts]).tolist()]))


def channelwise(record: Convolution, pixels: int) -> int:
    """As :func:`distance`, channel by channel: at the same address, only a channel already read is overwritten."""
    copies = len(record.bias) // record.input_shape[2]
    if copies == 1 and distance(record, pixels) == 0:
        return HERE
    return distance(record, pixels, reads_again=True)


def overlap_of(reads: list[int]) -> int:
    """Return the overlap of a function that writes in order; ``reads``: lowest offset read, per output number."""
    overlap, lowest = 0, reads[-1]
    for number in range(len(reads) - 1, 0, -1):
        # This output and all later ones are still unwritten.
        lowest = min(lowest, reads[number])
        overlap = max(overlap, number - lowest)
    return overlap
