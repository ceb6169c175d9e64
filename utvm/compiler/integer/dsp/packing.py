# SPDX-License-Identifier: Apache-2.0
"""Constants of int8 convolutions, arranged for the kernels of cores with the DSP extension."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.integer.fixed_point import requantize
from utvm.compiler.integer.records import Convolution, Int32, Residual

_SUM_LIMIT = 2**30
"""Sums below it can be doubled in 32 bits."""


def folded_bias(record: Convolution) -> npt.NDArray[np.int64]:
    """Return the bias with the input's zero point folded in: sums are of raw values then."""
    sums = record.weights.sum(axis=(1, 2, 3), dtype=np.int64)
    return np.asarray(record.bias.astype(np.int64) - record.input_zero * sums)


def settle(record: Convolution, limit: int = _SUM_LIMIT) -> tuple[Convolution, Int32 | None]:
    """Return the convolution that the kernels compute, and the table of ``scale_sum`` for its sums.

    Output channels that have one value whatever the input is (trained away, or behind an activation that is never
    left) have no weights and no bias any more: the table alone gives their value.

    Args:
        limit: below which every sum must be.

    Returns:
        The convolution, and int32 ``[channels][3]``: multiplier, offset, shift. None in place of the table where
        it cannot be proved that every sum fits the helper: sums of the limit and more, shifts to the left, no
        shift at all, or shifts that drop so much that the offset overflows.
    """
    channels = len(record.bias)
    multipliers = np.broadcast_to(record.rescale.multipliers, (channels,)).astype(np.int64)
    shifts = -np.broadcast_to(record.rescale.shifts, (channels,)).astype(np.int64)
    fixed = [_only_value(record, channel, low, high) for channel, (low, high) in enumerate(_ranges(record))]
    live = np.array([value is None for value in fixed])
    settled = dataclasses.replace(
        record,
        weights=np.where(live[:, None, None, None], record.weights, 0).astype(np.int8),
        bias=np.where(live, record.bias, 0).astype(np.int32),
    )
    largest = max(max(abs(low), abs(high)) for low, high in _ranges(settled))
    live_shifts = np.where(live, shifts, 1)
    table = None
    if largest < limit:
        table = _table(np.where(live, multipliers, 0), live_shifts, record.output_zero, largest)
    if table is not None:
        # A product of 0, plus the offset, shifted by one.
        table[~live, 1] = [2 * value for value in fixed if value is not None]
    return settled, table


def _ranges(record: Convolution) -> list[tuple[int, int]]:
    """Return the smallest and the largest sum of raw values that each output channel can have."""
    bias = folded_bias(record)
    weights = record.weights.reshape(len(bias), -1).astype(np.int64)
    upwards, downwards = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    lows, highs = bias - 128 * upwards + 127 * downwards, bias + 127 * upwards - 128 * downwards
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _only_value(record: Convolution, channel: int, low: int, high: int) -> int | None:
    """Return the value of an output channel whose sums lie in a range, or None if it has more than one."""
    if max(abs(low), abs(high)) >= 2**31:
        return None
    number = channel if len(record.rescale.multipliers) > 1 else 0
    multiplier, shift = int(record.rescale.multipliers[number]), int(record.rescale.shifts[number])
    first, last = (
        min(max(requantize(value, multiplier, shift) + record.output_zero, record.low), record.high)
        for value in (low, high)
    )
    return first if first == last else None


def residual_table(residual: Residual) -> Int32 | None:
    """Return the parameters of the helper ``add_residual``, or None where it does not hold for them."""
    rows: list[int] = []
    for zero, rescale in ((residual.result_zero, residual.result), (residual.other_zero, residual.other)):
        shift = -int(rescale.shifts[0])
        if not 0 <= shift <= 30:
            return None
        rows += [zero, int(rescale.multipliers[0]), (1 << shift) >> 1, shift]
    output = residual.output
    last = _table(
        output.multipliers.astype(np.int64), -output.shifts.astype(np.int64), residual.output_zero, 2**29
    )
    if last is None:
        return None
    return np.array([*rows, *last[0].tolist(), residual.low, residual.high], np.int32)


def _table(
    multipliers: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64], zero: int, largest: int
) -> Int32 | None:
    if shifts.min() < 1 or shifts.max() > 30:
        return None
    offsets = (np.int64(1) << (shifts - 1)) + (np.int64(zero) << shifts)
    products = (largest * multipliers >> 31) + 2
    if (products + np.abs(offsets)).max() >= 2**31:
        return None
    return np.stack([multipliers, offsets, shifts], axis=1).astype(np.int32)


def packed_weights(weights: npt.NDArray[np.int8]) -> Int32:
    """Pack weights ``[channels][k]`` into words ``[channels / 2][pairs]`` of two channels and a pair of k.

    Channels are filled up to a multiple of two, k to one of four, with zeros. From the lowest byte upwards a
    word is (o, k), (o + 1, k), (o, k'), (o + 1, k'): SXTB16 makes a channel's pair of it. Of four values in a row,
    the pairs are the first and third, and the second and fourth, since SXTB16 takes activations apart so.
    """
    channels, length = weights.shape
    padded = np.zeros((-(-channels // 2) * 2, -(-length // 4) * 4), np.int64)
    padded[:channels, :length] = weights
    pairs = padded.reshape(len(padded) // 2, 2, -1, 2, 2)  # pair of channels, channel, four, k', pair
    parts = pairs.transpose(0, 2, 4, 3, 1) & 255  # pair of channels, four, pair, k', channel
    words = parts[..., 0, 0] | parts[..., 0, 1] << 8 | parts[..., 1, 0] << 16 | parts[..., 1, 1] << 24
    return np.asarray(words.reshape(len(padded) // 2, -1).astype(np.uint32).view(np.int32))


def tile_stream(weights: npt.NDArray[np.int8], bias: npt.NDArray[np.int64], table: Int32, wide: bool) -> Int32:
    """Return the stream of the helper ``dsp_tile``.

    Args:
        weights: ``[channels][k]``.
        bias: with the input's zero point.
        table: of :func:`settle`.
        wide: whether weights are words' halves.
    """
    words = packed_weights(weights)
    if wide:
        # Bytes of a word: both channels' first weights, both channels' second ones.
        parts = 2 * words.view(np.int8).reshape(*words.shape, 2, 2).astype(np.int64)
        words = _halves(parts[..., 0, :], parts[..., 1, :]).reshape(len(words), -1)
    biases, scales = _in_groups(bias * (2 if wide else 1), table, 2)
    return np.hstack([biases, words, scales]).ravel()


def dense_stream(weights: npt.NDArray[np.int8], bias: npt.NDArray[np.int64], table: Int32) -> Int32:
    """Return the stream of the helper ``dsp_dense``; arguments as :func:`tile_stream`."""
    channels, length = weights.shape
    padded = np.zeros((-(-channels // 4) * 4, length), np.int8)
    padded[:channels] = weights
    words = packed_weights(padded)
    # Of each four values, two words of the first two channels, then two of the others.
    words = words.reshape(len(padded) // 4, 2, -1, 2).transpose(0, 2, 1, 3).reshape(len(padded) // 4, -1)
    biases, scales = _in_groups(bias, table, 4)
    return np.hstack([biases, words, scales]).ravel()


def plane_stream(weights: npt.NDArray[np.int8], bias: npt.NDArray[np.int64], table: Int32) -> Int32:
    """Return the stream of the helper ``dsp_plane``.

    Args:
        weights: ``[channels][rows][columns][1]``, at most three of each.
        bias, table: as :func:`tile_stream`.
    """
    channels, rows, columns, _ = weights.shape
    square = np.zeros((channels, 3, 3), np.int64)
    square[:, :rows, :columns] = 2 * weights[..., 0].astype(np.int64)
    words = _halves(square[..., :2], square[..., 1:]).reshape(channels, -1)
    return np.column_stack([words, 2 * bias, table]).astype(np.int32).ravel()


def _halves(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Int32:
    return np.asarray((low & 0xFFFF | high.astype(np.int64) << 16).astype(np.uint32).view(np.int32))


def _in_groups(bias: npt.NDArray[np.int64], table: Int32, size: int) -> tuple[Int32, Int32]:
    """Return biases ``[groups][size]`` and scales ``[groups][size * 3]``, zeros for missing channels."""
    groups = -(-len(bias) // size)
    biases, scales = np.zeros(groups * size, np.int32), np.zeros((groups * size, 3), np.int32)
    biases[: len(bias)], scales[: len(bias)] = bias, table
    scales[len(bias) :, 2] = 1
    return biases.reshape(groups, -1), scales.reshape(groups, -1)


def packed_depthwise_weights(weights: npt.NDArray[np.int8]) -> Int32:
    """Pack weights ``[channels][rows][columns][1]`` into words ``[channels / 4][rows * columns]``.

    A word holds four channels, the first in the lowest byte. Channels are a multiple of four.
    """
    parts = weights.reshape(len(weights) // 4, 4, -1).astype(np.int64).transpose(0, 2, 1) & 255
    words = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16 | parts[..., 3] << 24
    return np.asarray(words.astype(np.uint32).view(np.int32))


def geometry(record: Convolution) -> Int32:
    """Return the description of windows that the helpers ``copy_window`` and ``window_columns`` read."""
    _, rows, columns, _ = record.weights.shape
    return np.array(
        [
            *record.input_shape,
            rows,
            columns,
            *record.strides,
            *record.dilation,
            *record.padding[:2],
            record.output_shape[1],
            record.input_zero,
        ],
        np.int32,
    )
