# SPDX-License-Identifier: Apache-2.0
"""Constants of int8 convolutions, arranged for the kernels of any core."""

import numpy as np
import numpy.typing as npt

from utvm.compiler.integer.dsp.packing import folded_bias, residual_table, settle
from utvm.compiler.integer.fixed_point import requantize
from utvm.compiler.integer.records import Convolution, Int8, Int32, Rescale, Residual

UNROLLED = 8
"""Of how many values a channel's weights are a multiple."""

_SUM_LIMIT = 2**28
"""Sums below it can be multiplied by four in 31 bits."""
_REACH = 255
"""Products of weights whose magnitudes add up to it, and any values, add up to 16 bits."""


def settle_folded(record: Convolution) -> tuple[Convolution, Int32] | None:
    """Return the convolution that the kernels compute, and the table of ``scale_folded`` for its sums.

    Returns:
        As :func:`utvm.compiler.integer.dsp.packing.settle` has the convolution, and int32 ``[channels][4]``: bias,
        multiplier, offset, shift. None where it cannot be proved that every sum fits.
    """
    settled, table = settle(record, _SUM_LIMIT)
    folded = None if table is None else _folded(table)
    if folded is None:
        return None
    return settled, np.column_stack([folded_bias(settled), folded]).astype(np.int32)


def _folded(table: Int32) -> npt.NDArray[np.int64] | None:
    """Return rows of ``scale_sum`` as ``scale_folded`` has them: the first rounding is a bit in the offset."""
    multipliers, offsets, shifts = table.astype(np.int64).T
    offsets = 2 * offsets + 1
    # A product of four times a sum below 2^28 is below 2^29.
    if shifts.max() > 30 or np.abs(offsets).max() >= 2**31 - 2**29:
        return None
    return np.stack([multipliers, offsets, shifts + 1], axis=1)


def padded_weights(weights: Int8) -> Int8:
    """Return weights ``[channels][k]``, k filled up with zeros."""
    channels, length = weights.shape
    padded = np.zeros((channels, -(-length // UNROLLED) * UNROLLED), np.int8)
    padded[:, :length] = weights
    return padded


def groups(weights: Int8) -> Int32 | None:
    """Return for each channel of how many products a sum fits 16 bits: 1, 2 or 3 for two, four or eight.

    None where in some channel not even two do.
    """
    magnitudes = np.abs(weights.astype(np.int32))
    chosen = np.zeros(len(weights), np.int32)
    for group in (1, 2, 3):
        fits = magnitudes.reshape(len(weights), -1, 1 << group).sum(axis=2).max(axis=1) <= _REACH
        chosen[fits] = group
    return chosen if chosen.all() else None


def residual_tables(residual: Residual) -> Int32 | None:
    """Return the tables of the helper ``add_tables``, or None where it does not hold for them."""
    plain = residual_table(residual)
    if plain is None:
        return None
    operands = ((residual.result_zero, residual.result), (residual.other_zero, residual.other))
    tables = [_scaled(zero, rescale) for zero, rescale in operands]
    folded = _folded(plain[None, 8:11])
    if folded is None or sum(max(map(abs, table)) for table in tables) >= _SUM_LIMIT:
        return None
    return np.array([*tables[0], *tables[1], *folded[0], residual.low, residual.high], np.int32)


def _scaled(zero: int, rescale: Rescale) -> list[int]:
    multiplier, shift = int(rescale.multipliers[0]), int(rescale.shifts[0])
    return [requantize((value - zero) << 20, multiplier, shift) for value in range(-128, 128)]
