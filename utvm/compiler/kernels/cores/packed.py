# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions for any core: a multiplication computes two pixels in a word. Helpers serve all layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from utvm.compiler.kernels.cores import constants as common
from utvm.compiler.kernels.records import Convolution, Int8, Int32, Operator, channelwise, distance

_PIXELS = 4
_NARROW = (8, 7, 6, 5, 4)  # Widths of a block of a depthwise row if memory counts, in pixels.
_FEW = 4  # Pixels of a small image that do not justify copying it.
_SMALL = 1024  # Bytes of a channel's image that is copied as a whole.
_MANY = 12  # Channels that justify expanding a dense layer's values.
_UNROLLED = 8  # A channel's weights are padded to a multiple of it.
_REACH = 255  # If the magnitudes of the weights sum to at most this, the sum of products fits 16 bits.


def make_packed_operator(record: Convolution) -> Operator | None:
    """Make the operator, or return None if the kernels do not support the record."""
    settled = common.settle_with_offset(record)
    if settled is None:
        return None
    if record.depthwise:
        return _depthwise(*settled)
    if _is_dense(record):
        return _dense(*settled)
    return _convolution(*settled)


def _is_dense(record: Convolution) -> bool:
    return record.weights[0].shape == record.input_shape and not any(record.padding) and record.residual is None


def make_dense_pairs(record: Convolution) -> Operator | None:
    """Make a dense operator of which a multiplication computes two channels, or return None; it needs more memory."""
    settled = common.settle_with_offset(record)
    channels, length = len(record.weights), record.weights[0].size
    if settled is None or record.depthwise or not _is_dense(record) or 2 < channels < _MANY:
        return None
    record, table = settled
    weights = np.zeros((-(-channels // 4) * 4, -(-length // 4) * 4), np.int32)
    weights[:channels, :length] = record.weights.reshape(channels, length)
    if not fits_words(weights):
        return None
    if channels <= 2:
        return _dense_operator(record, table, "dense_two", weights[0] + (weights[1] << 16))
    return _dense_operator(record, table, "dense_pairs", words_of(weights ^ 128), 2 * weights.shape[1])


def _dense(record: Convolution, table: Int32) -> Operator:
    channels, length = len(record.weights), record.weights[0].size
    weights = np.zeros((-(-channels // 4) * 4, length), np.int32)
    weights[:channels] = record.weights.reshape(channels, length)
    return _dense_operator(record, table, "dense_fours", words_of(weights))


def fits_words(weights: npt.NDArray[Any]) -> bool:
    """Whether ``dense_sums`` can add up the products of int8 weights, an even number a channel."""
    return bool(np.abs(weights.astype(np.int32)).reshape(-1, 2).sum(axis=1).max() <= _REACH)


def words_of(weights: Int32) -> Int32:
    fours = weights.astype(np.uint8).reshape(-1, 4, weights.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(fours).view("<i4").astype(np.int32)


def _dense_operator(record: Convolution, table: Int32, helper: str, words: Int32, scratch: int = 0) -> Operator:
    length, channels = record.weights[0].size, len(record.weights)
    constants: dict[str, npt.NDArray[Any]] = {"words": words.ravel(), "scales": table.ravel()}
    own = {"values": (scratch, "int32")} if scratch else {}

    def all_channels(_: Any, output: Any, at: common.Pointers) -> None:
        read = [at["data"], length, at["words"], at["scales"], channels, record.low, record.high]
        common.call_helper(helper, output.access_ptr("w"), *read, *(at[name] for name in own))

    return common.operator_of_steps(
        record, distance(record, 1, reads_again=not scratch), constants, own, 1, all_channels
    )


def _convolution(record: Convolution, table: Int32) -> Operator | None:
    rows, columns, depth = record.input_shape
    if record.weights.shape[1:3] == record.strides == (1, 1) and not any(record.padding):
        # Each window becomes a pixel of one row, so that no tile spans two rows.
        record = replace(record, input_shape=(1, rows * columns, depth))
    width, channels = record.output_shape[1:]
    padded = _padded_weights(record.weights.reshape(channels, -1))
    weights, begin = _span(padded)
    together = _groups(weights)
    if together is None:
        return None
    table[:, 3] += (together << 24) + (begin // _UNROLLED << 8)
    constants: dict[str, npt.NDArray[Any]] = {"weights": weights.ravel(), "scales": table.ravel()}
    constants["geometry"] = common.geometry(record)
    length = weights.shape[1]
    own = {"columns": (2 * padded.shape[1], "int32")}

    def tile(number: Any, target: Any, count: Any, at: common.Pointers) -> None:
        first = number * _PIXELS
        read = [at[item] for item in ("data", "geometry", "columns")]
        place = [tirx.floordiv(first, width), tirx.floormod(first, width), count]
        more = [at["weights"], length, at["scales"], channels, record.low, record.high, record.output_zero]
        common.call_helper("convolve_tile", target(0), *read, *place, *more)

    return common.operator_of_tiles(record, distance(record, _PIXELS), constants, own, _PIXELS, tile)


def _depthwise(record: Convolution, table: Int32) -> Operator | None:
    if record.residual is not None:
        return None
    _, width, _ = record.output_shape
    weights = record.weights[..., 0].transpose(0, 2, 1)
    constants: dict[str, npt.NDArray[Any]] = {"weights": np.ascontiguousarray(weights).ravel(), "scales": table.ravel()}
    constants["geometry"] = common.geometry(record)
    # A layer that does not shrink its input gains too little to be worth the time.
    narrow = next((item for item in _NARROW if width % item == 0 and record.strides[0] > 1), width)
    forms = [_line(record, constants, pixels) for pixels in dict.fromkeys((width, narrow))]
    image = _image(record, constants) if _is_usual(record) else None
    return common.with_forms([image, *forms] if image else forms)


def _is_nine(record: Convolution) -> bool:
    return record.weights.shape[1:3] == (3, 3) and record.dilation == (1, 1)


def _is_usual(record: Convolution) -> bool:
    """Whether a depthwise record is one of 3x3 taps side by side, with the limits of int8."""
    return _is_nine(record) and (record.output_zero, record.low, record.high) == (-128, -128, 127)


def _image(record: Convolution, constants: Mapping[str, npt.NDArray[Any]]) -> Operator | None:
    height, width, channels = record.output_shape
    rows, pitch = ((item - 1) * step + 3 for item, step in zip((height, width), record.strides, strict=True))
    if rows * pitch > _SMALL or channels != record.input_shape[2]:
        return None

    def image(_: Any, output: Any, at: common.Pointers) -> None:
        read = [at[item] for item in ("data", "geometry", "plane", "weights", "scales")]
        common.call_helper("depthwise_image", output.access_ptr("w"), *read, height, rows, pitch)

    own = {"plane": (rows * pitch, "int8")}
    return common.operator_of_steps(record, channelwise(record, height * width), constants, own, 1, image)


def make_narrow(record: Convolution, large: bool) -> Operator | None:
    """Make a depthwise operator that copies nothing, or return None: for rows of a few pixels, or ``large`` filters."""
    settled = common.settle_with_offset(record)
    (height, width, channels), inputs = record.output_shape, record.input_shape[2]
    if settled is None or channels % 4 or inputs != channels or record.residual is not None:
        return None
    few = width <= 2 or record.weights.shape[2] > width
    if (_is_usual(record) and height * width > _FEW) or not (few or (large and not _is_nine(record))):
        return None  # A copy of a channel is faster.
    record, table = settled
    table[:, 0] += record.input_zero * record.weights.sum(axis=(1, 2, 3), dtype=np.int32)
    words = np.ascontiguousarray(record.weights.reshape(channels // 4, 4, -1).transpose(0, 2, 1)).view("<i4")
    constants = {"weights": words.astype(np.int32).ravel(), "scales": table.ravel()}
    constants |= {"geometry": common.geometry(record)}

    def row(number: Any, output: Any, at: common.Pointers) -> None:
        to = tirx.address_of(output[number * (width * channels)])
        read = [at[item] for item in ("data", "geometry", "weights", "scales")]
        common.call_helper("depthwise_narrow", to, *read, number, record.low, record.high)

    return common.operator_of_steps(record, distance(record, width, reads_again=True), constants, {}, height, row)


def _line(record: Convolution, constants: Mapping[str, npt.NDArray[Any]], pixels: int) -> Operator:
    height, width, channels = record.output_shape
    _, rows, columns, _ = record.weights.shape
    # Pointers reach up to one step behind the last window.
    needed = pixels * record.strides[1] + (columns - 1) * record.dilation[1] + 1
    own = {"plane": (needed * rows, "int8")}

    def line(number: Any, output: Any, at: common.Pointers) -> None:
        first = number * pixels
        to = tirx.address_of(output[first * channels])
        place = [tirx.floordiv(first, width), tirx.floormod(first, width), pixels]
        read = [at["data"], at["geometry"], at["plane"], *place, at["weights"], at["scales"]]
        copies = channels // record.input_shape[2]
        common.call_helper("depthwise_line", to, *read, copies, record.low, record.high, record.output_zero)

    return common.operator_of_steps(record, channelwise(record, pixels), constants, own, height * width // pixels, line)


def _padded_weights(weights: Int8) -> Int8:
    channels, length = weights.shape
    padded = np.zeros((channels, -(-length // _UNROLLED) * _UNROLLED), np.int8)
    padded[:, :length] = weights
    return padded


def _span(weights: Int8) -> tuple[Int8, Int32]:
    """Cut the channels' weights to their longest part with values, as in groups; return them and its beginnings."""
    some = np.asarray((weights.reshape(len(weights), -1, _UNROLLED) != 0).any(axis=-1))
    some[~some.any(axis=-1), 0] = True
    first, last = some.argmax(axis=1), some.shape[1] - some[:, ::-1].argmax(axis=1)
    length = int((last - first).max()) * _UNROLLED
    begin = np.minimum(first * _UNROLLED, weights.shape[1] - length).astype(np.int32)
    return np.take_along_axis(weights, begin[:, None] + np.arange(length), axis=1), begin


def _groups(weights: Int8) -> Int32 | None:
    """Return, per channel, 1, 2 or 3 if two, four or eight products sum to 16 bits; None if any has no two."""
    magnitudes = np.abs(weights.astype(np.int32))
    groups = np.zeros(len(weights), np.int32)
    for group in (1, 2, 3):
        fits = magnitudes.reshape(len(weights), -1, 1 << group).sum(axis=2).max(axis=1) <= _REACH
        groups[fits] = group
    return groups if groups.all() else None
