# SPDX-License-Identifier: Apache-2.0
"""Int8 3x3 convolutions of stride 1 by Winograd's algorithm, exact in integers, with Arm's DSP extension or MVE.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016: F(2x2, 3x3) and F(4x4, 3x3).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
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
_ROUNDED = 2**31 // 576  # Larger sums, 576 times, do not fit 32 bits; others are found by rounding.
_MOST_APART = 2**16 - 4  # Bytes between two rows; the kernel stores with 16-bit offsets.


def make_with_winograd(record: Convolution, *, thrifty: bool = True) -> Operator | None:
    """Make the operator, or return None if the kernels do not support the record.

    Args:
        thrifty: only where the layer has enough outputs for the flash that its weights take, and little scratch.
    """
    settled, table = common.settle(record)
    pairs = record.input_shape[2] // 2
    if table is None or len(table) % 4 or record.input_shape[2] % 4 or not _is_square(record):
        return None
    if (pairs > 16 and pairs % 16) or pairs > _MOST_PAIRS:
        return None
    largest = _LARGEST * int(np.abs(settled.weights.astype(np.int64)).sum(axis=(1, 2, 3)).max())
    tile = next((tile for tile in _TILES if largest < tile.limit and _is_worth(record, tile, thrifty)), None)
    return None if tile is None else _make(settled, tile, table)


def make_winograd_with_vectors(record: Convolution) -> Operator | None:
    """Make the operator for MVE, F(4x4); None if the kernels do not support the record, or others take less time."""
    tile = _TILES[0]
    settled, table = common.settle(record, tile.limit)
    width, outputs = record.output_shape[1:]
    chunks, rest = divmod(record.input_shape[2], 8)
    if table is None or outputs % 4 or rest or (chunks > 16 and chunks % 16) or width * outputs > _MOST_APART:
        return None
    if not _is_square(record) or not _saves_instructions(record):
        return None
    columns = _strip_width(record, tile) + 2
    more = [outputs, record.output_zero, record.low, record.high, columns]
    constants: dict[str, Any] = {
        "stream": _vector_stream(settled, tile, table),
        "geometry": np.append(common.geometry(record), more).astype(np.int32),
    }
    own = {
        "strip": (chunks * (48 * columns + 4 * record.input_shape[1]), "int16"),
        "values": (chunks * 36 * 16, "int16"),
        "sums": (36 * 8, "int32"),
        "spare": (tile.size**2 * 8, "int8"),
    }
    rounded, clamped = record.low < record.output_zero, (record.low, record.high) != (-128, 127)
    wide = max(max(-low, high) for low, high in common.ranges(settled)) > _ROUNDED
    helper = f"vector_winograd_{chunks}_{rounded:d}_{clamped:d}_{wide:d}"

    def strip(number: Any, target: Any, count: Any, at: common.Pointers) -> None:
        read = [at[name] for name in ("data", "geometry", "stream", "strip", "values", "sums", "spare")]
        common.call_helper(helper, target(0), *read, number * tile.size, tirx.floordiv(count, width))

    together = tile.size * width
    near = distance(record, together)
    return common.operator_of_tiles(record, near, constants, own, together, strip, "vector_add")


def _is_square(record: Convolution) -> bool:
    return record.weights.shape[1:3] == (3, 3) and record.strides == (1, 1) and record.dilation == (1, 1)


def _saves_instructions(record: Convolution) -> bool:
    """Whether two tiles of all channels take fewer instructions than the kernel of windows; measured, then rounded."""
    (height, width, outputs), inputs = record.output_shape, record.input_shape[2]
    pairs = -(-height // 4) * -(-width // 8)
    own = pairs * (outputs // 4 * (36 * (14 * inputs // 8 + 3) + 650) + inputs // 8 * 560)
    return own < height * width * outputs // 8 * (14 * 3 * -(-3 * inputs // 16) + 30)


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
    outputs, depth = len(record.weights), record.weights.shape[3]
    moved = _transformed(record, tile).reshape(outputs // 4, 4, -1, depth)
    groups = moved.transpose(0, 2, 1, 3)  # Four channels, position, channel, input channel.
    begin = -tile.offset * groups.sum(axis=3, keepdims=True)
    parts = groups.reshape(*groups.shape[:3], depth // 4, 2, 2)  # ..., half, which of a pair
    words = halves(parts[..., 0, :], parts[..., 1, :]).reshape(*groups.shape[:3], -1)
    words = np.concatenate([begin.astype(np.uint32).view(np.int32), words], axis=3).transpose(0, 1, 3, 2)
    bias = 2 * (common.folded_bias(record) - 128 * record.weights.sum(axis=(1, 2, 3), dtype=np.int64))
    scales = np.column_stack([bias.astype(np.uint32).view(np.int32), table]).reshape(outputs // 4, -1)
    return np.hstack([words.reshape(outputs // 4, -1), scales]).astype(np.int32).ravel()


def _vector_stream(record: Convolution, tile: OutputTile, table: Int32) -> Int32:
    """Pack, for each four output channels, the weights ``[positions][chunks][4 channels][8]`` of 16 bits, then scales.

    Those are ``[3][4 channels]``: 36 times the bias, which is what the tile's second position in both directions adds
    to all outputs, modulo 2^32; multiplier; shift to the left.
    """
    outputs, depth = len(record.bias), record.weights.shape[3]
    moved = _transformed(record, tile).reshape(outputs // 4, 4, 36, depth // 8, 8).transpose(0, 2, 3, 1, 4)
    words = moved.astype(np.int16).reshape(outputs // 4, -1).view(np.int32)
    scales = common.biased_scales(record, table) * np.array([36, 1, -1], np.int64)
    scales = scales.astype(np.uint32).view(np.int32).reshape(-1, 4, 3).transpose(0, 2, 1)
    return np.hstack([words, scales.reshape(outputs // 4, -1)]).ravel()


def _transformed(record: Convolution, tile: OutputTile) -> npt.NDArray[np.int64]:
    transform = np.array(tile.weights, np.int64)
    return np.asarray(np.einsum("ia,oabc,jb->oijc", transform, record.weights.astype(np.int64), transform))
