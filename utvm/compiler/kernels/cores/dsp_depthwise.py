# SPDX-License-Identifier: Apache-2.0
"""Int8 depthwise convolutions for cores with the DSP extension.

One channel at a time, in a plane of int16; or else four channels of a pixel at a time, a row after the other.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from utvm.compiler.kernels.cores.constants import folded_bias, geometry, settle
from utvm.compiler.kernels.cores.dsp import clamp, halves, variant
from utvm.compiler.kernels.cores.steps import Pointers, call_helper, operator_of_steps, with_forms
from utvm.compiler.kernels.overlaps import channelwise, distance
from utvm.compiler.kernels.records import Convolution, Int32, Operator

_WIDTHS = (48, 24, 12, 8)  # How many pixels of a row are made together where memory counts.
_LITTLE = 160  # Bytes of a plane; less is not worth narrower parts.
_MOST_PITCH = 504  # Bytes; what a load reaches in the plane's third row.
_LEAST_PIXELS = 4  # Fewer are not worth a plane for each channel.
_MOST_CHANNELS = 4095  # What an addition of a constant reaches.


def make_planes_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for it.

    They hold for filters of up to three rows and columns side by side, and steps to the side of one or two.
    """
    settled, table = settle(record)
    _, rows, columns, _ = record.weights.shape
    channels = len(record.bias)
    if table is None or record.residual is not None or max(rows, columns) > 3 or record.strides[1] > 2:
        return None
    if (
        record.dilation != (1, 1)
        or channels > _MOST_CHANNELS
        or math.prod(record.output_shape[:2]) < _LEAST_PIXELS
    ):
        return None
    constants: dict[str, npt.NDArray[Any]] = {
        "stream": _plane_stream(settled.weights, folded_bias(settled), table),
        "geometry": geometry(settled),
    }
    height, width, _ = record.output_shape
    widths = [item for item in _WIDTHS if width % item == 0]
    enough = next((width for width in widths if 3 * _pitch(record, width) <= _LITTLE), 0)
    sizes = [(height, width), *((1, width) for width in widths if width >= enough)]
    sizes = [size for size in sizes if _pitch(record, size[1]) <= _MOST_PITCH]
    return with_forms([_plane(settled, constants, *size) for size in sizes]) if sizes else None


def _plane(record: Convolution, constants: dict[str, npt.NDArray[Any]], tall: int, pixels: int) -> Operator:
    """Make the operator."""
    height, width, channels = record.output_shape
    copies = channels // record.input_shape[2]
    down, across = record.strides
    pitch, lines = _pitch(record, pixels), (tall - 1) * down + 3
    helper = f"dsp_depthwise_{lines}_{copies}_{across}_{down}_{pitch}_{pixels}_{channels}_{variant(record)}"
    together = tall * pixels

    def band(number: Any, output: Any, at: Pointers) -> None:
        first = number * together
        to = tirx.address_of(output[first * channels])
        place = [tirx.floordiv(first, width), tirx.floormod(first, width)]
        call_helper(helper, to, *(at[item] for item in ("data", "geometry", "plane", "stream")), *place, tall)
        clamp(record, to, together * channels)

    own = {"plane": (lines * pitch // 4, "int32")}
    overlap = (channelwise(record, together),)
    steps = height * width // together
    return operator_of_steps(record, "depthwise_conv2d_int8", overlap, constants, own, steps, band)


def _pitch(record: Convolution, pixels: int) -> int:
    # Pixels are made two by two: the last one alone reads as many values as two do.
    seen = pixels + 2 + pixels % 2 if record.strides[1] == 1 else 2 * pixels + 2
    return 4 * -(-seen // 2)


def _plane_stream(weights: npt.NDArray[np.int8], bias: npt.NDArray[np.int64], table: Int32) -> Int32:
    channels, rows, columns, _ = weights.shape
    square = np.zeros((channels, 3, 3), np.int64)
    square[:, :rows, :columns] = 2 * weights[..., 0].astype(np.int64)
    words = halves(square[..., :2], square[..., 1:]).reshape(channels, -1)
    return np.column_stack([words, 2 * bias, table]).astype(np.int32).ravel()


def make_depthwise_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for it.

    They hold for one output channel per input channel, channels in fours, no residual, and sums that
    :func:`utvm.compiler.kernels.cores.constants.settle` can bound.
    """
    record, table = settle(record)
    channels = record.input_shape[2]
    if table is None or channels % 4 or len(record.bias) != channels or record.residual is not None:
        return None
    if record.dilation != (1, 1):
        return None  # Each window would be copied, which takes longer than what is not copied saves.
    constants = {
        "weights": _packed_depthwise_weights(record.weights),
        "bias": folded_bias(record).astype(np.int32),
        "scales": table,
        "geometry": geometry(record),
    }
    width = record.output_shape[1]

    def row(number: Any, output: Any, at: Pointers) -> None:
        to = tirx.address_of(output[number * (width * channels)])
        read = [at["data"], at["geometry"], at["window"], number, at["weights"], at["bias"], at["scales"]]
        call_helper("depthwise_row", to, *read, record.low, record.high)

    overlap = (distance(record, 1, reads_again=True),)
    own = {"window": (record.weights[0].size * channels, "int8")}
    return operator_of_steps(record, "depthwise_conv2d_int8", overlap, constants, own, record.output_shape[0], row)


def _packed_depthwise_weights(weights: npt.NDArray[np.int8]) -> Int32:
    """Pack weights ``[channels][rows][columns][1]`` into words ``[channels / 4][rows * columns]``.

    A word holds four channels, the first in the lowest byte. Channels are a multiple of four.
    """
    parts = weights.reshape(len(weights) // 4, 4, -1).astype(np.int64).transpose(0, 2, 1) & 255
    words = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16 | parts[..., 3] << 24
    return np.asarray(words.astype(np.uint32).view(np.int32))
