# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions for MVE or NEON: rows of windows, read in place or copied, eight sums at a time."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from utvm.compiler.kernels.cores import constants as common
from utvm.compiler.kernels.records import Convolution, Int8, Int32, Operator, distance

_VECTOR = 16  # Bytes.
_MOST_UNROLLED = 18  # Vectors per unrolled round of a long window.
_MOST_RUN = 2 * _MOST_UNROLLED * _VECTOR  # Bytes; longer windows are copied and computed in rounds.
_COPY = 40  # Estimated instructions per copied run of a window.
_NARROW = (24, 12, 8, 4)  # Widths of a block of a depthwise row if memory counts, in pixels.
_MOST_STEP = 508  # Bytes between windows of two pixels; reach of a gather load.
_LITTLE = 1088  # Bytes of scratch; less is not worth splitting a row of twelve pixels.
_LEAST_WIDTH = 4  # Pixels; narrower rows are computed eight channels at a time.
_MOST_APART = 2**16 - 4  # Bytes between two pixels; kernels store with 16-bit offsets.


def make_with_vectors(record: Convolution, alone: bool) -> Operator | None:
    """Make the operator, or return None if unsupported; ``alone``: a single pixel is computed once."""
    settled = _settle_vectors(record)
    if settled is None or len(record.bias) > _MOST_APART:
        return None
    if not record.depthwise:
        return _convolution(*settled, alone)
    is_narrow = alone and record.output_shape[1] < _LEAST_WIDTH
    return (make_lanes(record) if is_narrow else None) or _depthwise(*settled)


def _convolution(record: Convolution, scales: Int32, alone: bool) -> Operator | None:
    kind, record = _way(record)
    height, width, channels = record.output_shape
    pixels = 1 if alone and height * width == 1 and kind == "pixels" else 2
    weights, unrolled, rounds = _runs(record, kind)
    stream = _tiles(weights, scales, pixels)
    run = unrolled * _VECTOR
    needed = ((width - 1) * record.strides[1] + record.weights.shape[2]) * record.input_shape[2]
    line = max(-(-needed // _VECTOR) * _VECTOR, run)
    mask = (1 << 2 * pixels * ((channels - 1) % (8 // pixels) + 1)) - 1
    more = [channels, record.output_zero, record.low, record.high, mask, len(stream)]
    constants: dict[str, npt.NDArray[Any]] = {"stream": stream}
    constants["geometry"] = np.append(common.geometry(record), [*more, run, rounds, line]).astype(np.int32)
    # Copy a pixel only if the kernel would read beyond its end.
    pixel = run * rounds if record.weights[0].size < run * rounds else 1
    scratch = {"row": rounds * line + _VECTOR, "pixels": pixel, "windows": 2 * run * rounds}[kind]
    own = {"scratch": (scratch, "int8")}
    rounded = int(record.low < record.output_zero)
    helper = f"vector_{kind}_{unrolled}_{rounds}_{pixels}_{rounded}"
    if kind == "windows":
        _, rows, columns, depth = record.weights.shape
        helper += f"_{rows}_{columns * depth}" if record.dilation == (1, 1) else "_0_0"

    def row(number: Any, target: Any, _: Any, at: common.Pointers) -> None:
        read = [at[item] for item in ("data", "geometry", "scratch", "stream")]
        common.call_helper(helper, target(0), *read, number)

    near = distance(record, 2 if kind == "pixels" else width, reads_again=kind != "row")
    return common.operator_of_tiles(record, near, constants, own, width, row, "vector_add")


def _way(record: Convolution) -> tuple[str, Convolution]:
    height, width, channels = record.input_shape
    outputs, rows, columns, _ = record.weights.shape
    if not any(record.padding) and (rows, columns) == (height, width):
        # A single pixel with all values.
        return "pixels", replace(
            record,
            input_shape=(1, 1, height * width * channels),
            weights=record.weights.reshape(outputs, 1, 1, -1),
            strides=(1, 1),
        )
    if not any(record.padding) and (rows, columns) == (1, 1):
        if record.strides == (1, 1) and record.residual is None:
            record = replace(record, input_shape=(1, height * width, channels))
        return "pixels", record
    run, whole = columns * channels, record.weights[0].size
    in_rows, in_windows = (-(-item // _VECTOR) for item in (run, whole))
    copied = 2 * (rows * _COPY + whole)
    products = 14 * -(-outputs // 4)
    is_near = columns == 1 or record.dilation[1] == 1
    if is_near and run <= _MOST_RUN and products * rows * in_rows <= products * in_windows + copied:
        return "row", record
    return "windows", record


def _runs(record: Convolution, kind: str) -> tuple[Int8, int, int]:
    channels, rows, _, _ = record.weights.shape
    parts = rows if kind == "row" else 1
    weights = record.weights.reshape(channels, parts, -1)
    length = weights.shape[2]
    rounds = 1 if kind == "row" else -(-length // (_MOST_UNROLLED * _VECTOR))
    unrolled = -(-length // (rounds * _VECTOR))
    padded = np.zeros((channels, parts, rounds * unrolled * _VECTOR), np.int8)
    padded[..., :length] = weights
    return padded.reshape(channels, -1), unrolled, parts * rounds


def _depthwise(record: Convolution, scales: Int32) -> Operator | None:
    _, width, channels = record.output_shape
    _, rows, columns, _ = record.weights.shape
    near = columns == 1 or record.dilation[1] == 1
    inputs = record.input_shape[2]
    block = min(inputs, _VECTOR)
    if record.residual is not None or rows > 4 or columns > 4 or not near or 7 * channels >= 2**16:
        return None
    if 4 * block * record.strides[1] > _MOST_STEP:
        return None
    seen = _columns(record, width)
    more = [channels, record.output_zero, record.low, record.high, seen]
    constants: dict[str, npt.NDArray[Any]] = {
        "stream": _channel_stream(record.weights, scales, channels // inputs, 4 * block * (seen - 1)),
        "geometry": np.append(common.geometry(record), more).astype(np.int32),
    }
    # From three columns on, too few windows share the copied rows.
    narrow = [item for item in _NARROW if item < width and width % item == 0 and record.strides[1] < 3]
    forms = [(width, inputs), *((width, block) for _ in range(inputs > block))]
    forms += [
        (item, block)
        for before, item in itertools.pairwise((width, *narrow))
        if _scratch(record, before, block) > _LITTLE
    ]
    return common.with_forms([_strip(record, constants, *form) for form in forms])


def _columns(record: Convolution, pixels: int) -> int:
    return (-(-pixels // 4) * 4 - 1) * record.strides[1] + 4


def _scratch(record: Convolution, pixels: int, channels: int) -> int:
    return 4 * _columns(record, pixels) * -(-channels // _VECTOR) * min(channels, _VECTOR) + 64 * (channels < _VECTOR)


def _strip(record: Convolution, constants: Mapping[str, npt.NDArray[Any]], pixels: int, together: int) -> Operator:
    height, width, channels = record.output_shape
    own = {"scratch": (_scratch(record, pixels, together), "int8")}
    line = 4 * min(record.input_shape[2], _VECTOR)
    rounded, clamped = record.low < record.output_zero, (record.low, record.high) != (-128, 127)
    helper = f"vector_depthwise_{line}_{line * record.strides[1]}_{rounded:d}_{clamped:d}"

    def part(number: Any, output: Any, at: common.Pointers) -> None:
        first = number * pixels
        to = tirx.address_of(output[first * channels])
        read = [at[item] for item in ("data", "geometry", "scratch", "stream")]
        place = [tirx.floordiv(first, width), tirx.floormod(first, width)]
        common.call_helper(helper, to, *read, *place, pixels, together)

    near = distance(record, pixels, reads_again=together < record.input_shape[2])
    return common.operator_of_steps(record, near, constants, own, height * width // pixels, part)


def make_lanes(record: Convolution) -> Operator | None:
    """Make the depthwise operator of a filter of any size, eight channels in a vector; None if unsupported."""
    settled = _settle_vectors(record)
    channels = len(record.bias)
    if settled is None or record.residual is not None or channels % 8 or record.input_shape[2] != channels:
        return None
    record, scales = settled
    height, width, _ = record.output_shape
    raw = scales[:, 0] + record.input_zero * record.weights.sum(axis=(1, 2, 3), dtype=np.int32)
    columns = [scales[:, 0], raw, scales[:, 1], scales[:, 2]]
    limits = [record.output_zero, record.low, record.high, record.input_zero]
    constants: dict[str, npt.NDArray[Any]] = {
        "weights": np.ascontiguousarray(record.weights[..., 0].transpose(1, 2, 0)).ravel(),
        "scales": np.stack(columns).reshape(4, -1, 4, 2).transpose(1, 0, 3, 2).ravel().astype(np.int32),
        "geometry": np.append(common.geometry(record), limits).astype(np.int32),
    }

    def row(number: Any, output: Any, at: common.Pointers) -> None:
        to = tirx.address_of(output[number * (width * channels)])
        read = [at[item] for item in ("data", "geometry", "weights", "scales")]
        common.call_helper(f"vector_lanes_{record.low < record.output_zero:d}", to, *read, number)

    return common.operator_of_steps(record, distance(record, width, reads_again=True), constants, {}, height, row)


def _settle_vectors(record: Convolution) -> tuple[Convolution, Int32] | None:
    """Return the convolution and ``[channels][3]``: bias, multiplier, right shift; None if a sum may overflow."""
    settled, table = common.settle(record)
    if table is None:
        return None
    return settled, common.biased_scales(settled, table) * np.array([1, 1, -1], np.int32)


def _tiles(weights: Int8, scales: Int32, pixels: int) -> Int32:
    in_registers = 8 // pixels
    order = np.arange(4) if pixels == 2 else np.array([0, 2, 4, 6, 1, 3, 5, 7])
    channels, length = weights.shape
    count = -(-channels // in_registers) * in_registers
    padded = np.zeros((count, length), np.int8)
    padded[:channels] = weights
    table = np.zeros((count, 3), np.int32)
    table[:channels] = scales
    parts: list[npt.NDArray[np.int32]] = []
    for first in range(0, count, in_registers):
        tiles = first + order
        chunks = padded[tiles].reshape(in_registers, -1, _VECTOR).transpose(1, 0, 2)
        parts += [table[tiles, 0], np.ascontiguousarray(chunks).view(np.int32).ravel()]
        parts += [table[item, column] for item in tiles.reshape(-1, 4) for column in (1, 2)]
    return np.concatenate(parts)


def _channel_stream(weights: Int8, scales: Int32, copies: int, apart: int) -> Int32:
    channels, rows, columns, _ = weights.shape
    square = np.zeros((channels, 4, 4), np.int8)
    square[:, :columns, :rows] = weights[..., 0].transpose(0, 2, 1)
    last = (np.arange(channels) + 1) % copies == 0
    # A column of the strip has 16 channels.
    steps = last * (4 + apart * ((np.arange(channels) + 1) % (_VECTOR * copies) == 0))
    stream = np.column_stack([square.reshape(channels, _VECTOR).view(np.int32), scales, steps])
    return stream.astype(np.int32).ravel()
