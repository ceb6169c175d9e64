# SPDX-License-Identifier: Apache-2.0
"""Int8 3x3 convolutions of stride 1 by Winograd's algorithm, exact in integers, with Arm's DSP extension.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016: F(2x2, 3x3) and F(4x4, 3x3).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from utvm.compiler.kernels.cores import constants as common
from utvm.compiler.kernels.cores.dsp import clamp, halves, variant
from utvm.compiler.kernels.records import Convolution, Int32, Operator, distance


@dataclass(frozen=True)
class OutputTile:
    """Outputs that are computed together, ``size`` x ``size``.

    Attributes:
        weights: G, its rows scaled to integers.
        offset: added to transformed pixels, which makes them positive.
        limit: magnitude that a sum of products may not reach.
        pixels: least number of outputs that justify the larger weights in flash.
    """

    size: int
    weights: tuple[tuple[int, int, int], ...]
    offset: int
    limit: int
    pixels: int


_TILES = (
    OutputTile(4, ((6, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 6)), 12750, 2**25, 384),
    OutputTile(2, ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)), 1020, 2**29, 96),
)
_MOST_WASTE = 1.3  # Outputs computed, of those needed.
_MOST_FLASH = 65536  # Bytes of a layer's weights.
_LEAST_SCRATCH = 4096  # Bytes that any layer may use.
_MOST_PAIRS = 4080  # Reach of the kernel's immediate operand.
_LARGEST = 255  # Of a pixel plus 128.


def make_with_winograd(record: Convolution, *, thrifty: bool = True) -> Operator | None:
    """Make the operator, or return None if the kernels do not support the record.

    Args:
        thrifty: only where the layer has enough outputs for the flash that its weights take, and little scratch.
    """
    settled, table = common.settle(record)
    pairs = record.input_shape[2] // 2
    if table is None or len(table) % 4 or record.input_shape[2] % 4:
        return None
    if record.weights.shape[1:3] != (3, 3) or record.strides != (1, 1) or record.dilation != (1, 1):
        return None
    if (pairs > 16 and pairs % 16) or pairs > _MOST_PAIRS:
        return None
    largest = _LARGEST * int(np.abs(settled.weights.astype(np.int64)).sum(axis=(1, 2, 3)).max())
    tile = next((tile for tile in _TILES if largest < tile.limit and _is_worth(record, tile, thrifty)), None)
    return None if tile is None else _make(settled, tile, table)


def _is_worth(record: Convolution, tile: OutputTile, thrifty: bool) -> bool:
    height, width, channels = record.output_shape
    computed = -(-height // tile.size) * tile.size * _strip_width(record, tile)
    if computed > _MOST_WASTE * height * width:
        return False
    flash = (tile.size + 2) ** 2 * (4 + 2 * record.input_shape[2]) * channels
    scratch = sum(count * np.dtype(dtype).itemsize for count, dtype in _scratch(record, tile).values())
    tensors = math.prod(record.input_shape) + math.prod(record.output_shape)
    # A strip is small beside the image, for which this was decided.
    is_small = flash <= _MOST_FLASH and (record.whole_rows > 0 or scratch <= max(_LEAST_SCRATCH, tensors // 3))
    return not thrifty or (record.pixels >= tile.pixels and is_small)


def _scratch(record: Convolution, tile: OutputTile) -> dict[str, tuple[int, str]]:
    depth, positions = record.input_shape[2], (tile.size + 2) ** 2
    return {
        "strip": ((tile.size + 2) * (_strip_width(record, tile) + 2) * depth // 4, "int32"),
        "values": (positions * depth, "int32"),
        "sums": (positions * 8, "int32"),
        "spare": (tile.size**2 * 8, "int8"),
    }


def _strip_width(record: Convolution, tile: OutputTile) -> int:
    return -(-record.output_shape[1] // (2 * tile.size)) * 2 * tile.size


def _make(record: Convolution, tile: OutputTile, table: Int32) -> Operator | None:
    width, channels = record.output_shape[1:]
    helper = f"winograd_{tile.size}_{record.input_shape[2] // 2}_{variant(record)}"
    constants: dict[str, Any] = {"stream": _stream(record, tile, table), "geometry": common.geometry(record)}

    def strip(number: Any, target: Any, count: Any, at: common.Pointers) -> None:
        to, rows = target(0), tirx.floordiv(count, width)
        scratch = (at[name] for name in ("strip", "values", "sums", "spare"))
        read = [at[name] for name in ("data", "geometry", "stream")]
        common.call_helper(helper, to, *read, *scratch, number * tile.size, rows, channels)
        clamp(record, to, count * channels)

    together = tile.size * width
    own = _scratch(record, tile)
    return common.operator_of_tiles(record, distance(record, together), constants, own, together, strip)


def _stream(record: Convolution, tile: OutputTile, table: Int32) -> Int32:
    """Pack, for each four output channels, the weights of all positions, then twice the biases and the scales.

    At a position, the sums that make up for the offset come first, then words ``[pairs][4 channels]``. A pair is
    the first and third, or the second and fourth, of four input channels.
    """
    weights = record.weights.astype(np.int64)
    outputs, depth = len(weights), weights.shape[3]
    transform = np.array(tile.weights, np.int64)
    moved = np.einsum("ia,oabc,jb->oijc", transform, weights, transform).reshape(outputs // 4, 4, -1, depth)
    groups = moved.transpose(0, 2, 1, 3)  # Four channels, position, channel, input channel.
    begin = -tile.offset * groups.sum(axis=3, keepdims=True)
    parts = groups.reshape(*groups.shape[:3], depth // 4, 2, 2)  # ..., half, which of a pair
    words = halves(parts[..., 0, :], parts[..., 1, :]).reshape(*groups.shape[:3], -1)
    words = np.concatenate([begin.astype(np.uint32).view(np.int32), words], axis=3).transpose(0, 1, 3, 2)
    bias = 2 * (common.folded_bias(record) - 128 * weights.sum(axis=(1, 2, 3)))
    scales = np.column_stack([bias.astype(np.uint32).view(np.int32), table]).reshape(outputs // 4, -1)
    return np.hstack([words.reshape(outputs // 4, -1), scales]).astype(np.int32).ravel()
