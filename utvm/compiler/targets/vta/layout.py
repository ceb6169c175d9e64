# SPDX-License-Identifier: Apache-2.0
"""Pack numpy arrays into zero-padded blocks, and unpack them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.targets.vta.env import Env

Array = npt.NDArray[Any]


def _blocks(array: Array, sizes: Sequence[int]) -> Array:
    counts = [-(-extent // size) for extent, size in zip(array.shape, sizes, strict=False)]
    rest = array.ndim - len(sizes)
    missing = [(0, count * size - n) for count, size, n in zip(counts, sizes, array.shape, strict=False)]
    full = np.pad(array, [*missing, *[(0, 0)] * rest])
    pairs = [number for pair in zip(counts, sizes, strict=True) for number in pair]
    cut = full.reshape(*pairs, *array.shape[len(sizes) :])
    outer, inside = range(0, 2 * len(sizes), 2), range(1, 2 * len(sizes), 2)
    return np.ascontiguousarray(cut.transpose(*outer, *range(2 * len(sizes), cut.ndim), *inside))


def data(env: Env, array: Array) -> Array:
    """Pack inputs: (rows, columns) or (images, channels, height, width)."""
    return _blocks(array, (env.BATCH, env.BLOCK_IN))


def weights(env: Env, array: Array) -> Array:
    """Pack weights: (outputs, inputs) or (outputs, inputs, height, width)."""
    return _blocks(array, (env.BLOCK_OUT, env.BLOCK_IN))


def bias(env: Env, array: Array) -> Array:
    """Pack a bias per output, repeated for each row of a batch."""
    rows = _blocks(array, (env.BLOCK_OUT,))
    return np.ascontiguousarray(np.repeat(rows[:, np.newaxis, :], env.BATCH, axis=1))


def flat(env: Env, array: Array) -> Array:
    return _blocks(array.reshape(-1), (env.BATCH * env.BLOCK_OUT,)).reshape(-1, env.BATCH, env.BLOCK_OUT)


def join_bytes(array: Array) -> Array:
    """Combine the four bytes of sums, the third dimension from the end, into int32."""
    together = np.ascontiguousarray(np.moveaxis(array, -3, -1)).view("<i4")
    return together[..., 0]


def unpack(array: Array, shape: Sequence[int]) -> Array:
    """Invert :func:`data`, given the original shape."""
    order = (0, array.ndim - 2, 1, array.ndim - 1, *range(2, array.ndim - 2))
    turned = array.transpose(*order)
    extents = (turned.shape[0] * turned.shape[1], turned.shape[2] * turned.shape[3], *turned.shape[4:])
    whole: Array = turned.reshape(extents)
    own: Array = whole[tuple(slice(extent) for extent in shape)]
    return own
