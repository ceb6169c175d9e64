# SPDX-License-Identifier: Apache-2.0
"""Constants of int8 convolutions, in the order in which kernels of vectors read them."""

import numpy as np
import numpy.typing as npt

from utvm.compiler.integer.dsp.packing import folded_bias, settle
from utvm.compiler.integer.packed.constants import residual_tables
from utvm.compiler.integer.records import Convolution, Int8, Int32, Residual

VECTOR = 16
"""Bytes of a vector."""

_HALF = 2**30


def settle_vectors(record: Convolution) -> tuple[Convolution, Int32] | None:
    """Return the convolution that the kernels compute, and int32 ``[channels][3]``: bias, multiplier, shift.

    The bias has the input's zero point in it. Shifts are not positive: to the right. None where it cannot be
    proved that every sum fits.
    """
    settled, table = settle(record)
    if table is None:
        return None
    multipliers, offsets, shifts = table.astype(np.int64).T
    # Of a channel that has one value, twice its distance from the zero point is halved.
    fixed = multipliers == 0
    bias = np.where(fixed, 2 * ((offsets >> shifts) - record.output_zero), folded_bias(settled))
    scales = np.stack([bias, np.where(fixed, _HALF, multipliers), np.where(fixed, 0, -shifts)], axis=1)
    return settled, scales.astype(np.int32)


def tiles(weights: Int8, scales: Int32, pixels: int) -> Int32:
    """Return the stream of the helper ``vector_tiles``.

    Args:
        weights: ``[channels][bytes of a window]``, a multiple of a vector.
        scales: of :func:`settle_vectors`.
        pixels: 2 for tiles of four channels, 1 for tiles of eight.
    """
    held = 8 // pixels
    order = np.arange(4) if pixels == 2 else np.array([0, 2, 4, 6, 1, 3, 5, 7])
    channels, length = weights.shape
    count = -(-channels // held) * held
    padded = np.zeros((count, length), np.int8)
    padded[:channels] = weights
    table = np.zeros((count, 3), np.int32)
    table[:channels] = scales
    parts: list[npt.NDArray[np.int32]] = []
    for first in range(0, count, held):
        chosen = first + order
        chunks = padded[chosen].reshape(held, -1, VECTOR).transpose(1, 0, 2)
        parts += [table[chosen, 0], np.ascontiguousarray(chunks).view(np.int32).ravel()]
        parts += [table[each, column] for each in chosen.reshape(-1, 4) for column in (1, 2)]
    return np.concatenate(parts)


def mask(channels: int, pixels: int) -> int:
    """Return which of the results of a window's last tile are there, as ``vector_tiles`` has it."""
    held = 8 // pixels
    return (1 << 2 * pixels * ((channels - 1) % held + 1)) - 1


def channel_stream(weights: Int8, scales: Int32, copies: int) -> Int32:
    """Return the stream of the helper ``vector_channels``.

    Args:
        weights: ``[channels][rows][columns][1]``, at most four of each.
        scales: of :func:`settle_vectors`.
        copies: channels of the output of each of the input.
    """
    channels, rows, columns, _ = weights.shape
    square = np.zeros((channels, 4, 4), np.int8)
    square[:, :columns, :rows] = weights[..., 0].transpose(0, 2, 1)
    last = np.arange(channels) % copies == copies - 1
    stream = np.column_stack([square.reshape(channels, VECTOR).view(np.int32), scales, 4 * last])
    return stream.astype(np.int32).ravel()


def sum_tables(residual: Residual) -> Int32 | None:
    """Return the tables of the helper ``vector_add``, or None where it does not hold for them."""
    tables = residual_tables(residual)
    if tables is None:
        return None
    scale = [residual.output.multipliers[0], residual.output.shifts[0], residual.output_zero]
    return np.array([*tables[:512], *scale, residual.low, residual.high], np.int32)
