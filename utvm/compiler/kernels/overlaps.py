# SPDX-License-Identifier: Apache-2.0
"""Which bytes an int8 convolution reads and writes when, and what memory its output may share therefore."""

import numpy as np

from utvm.compiler.kernels.records import Convolution
from utvm.compiler.library import HERE


def distance(record: Convolution, pixels: int, *, reads_again: bool = False) -> int:
    """How many bytes the output must begin before the input for the two to share memory.

    Args:
        pixels: how many output pixels are made together, in rows: first what they read is read, all of it, then
            they are written.
        reads_again: whether parts of a pixel are written before all that it needs is read.
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
    # What is read from a pixel onwards, not only by it.
    lowest = np.minimum.accumulate(lowest[::-1])[::-1]
    starts = np.arange(0, len(lowest), pixels)
    ends = np.minimum(starts + pixels, len(lowest))
    if not reads_again:
        # What a tile writes must not meet what later tiles read.
        starts, ends = starts[1:], ends[:-1]
    return int(max([0, *(ends * outputs - lowest[starts]).tolist()]))


def channelwise(record: Convolution, pixels: int) -> int:
    """As :func:`distance` what holds for a depthwise convolution that makes one channel after the other.

    At the same place, a tile writes over a channel that it has read, and over no other one.
    """
    copies = len(record.bias) // record.input_shape[2]
    if copies == 1 and distance(record, pixels) == 0:
        return HERE
    return distance(record, pixels, reads_again=True)


def overlap_of(reads: list[int]) -> int:
    """The overlap of a function that writes its output in order.

    Args:
        reads: for each output number, the lowest offset that it is made of.
    """
    overlap, lowest = 0, reads[-1]
    for number in range(len(reads) - 1, 0, -1):
        # When all output numbers before this one are written, this one and those behind it are still to be read.
        lowest = min(lowest, reads[number])
        overlap = max(overlap, number - lowest)
    return overlap
