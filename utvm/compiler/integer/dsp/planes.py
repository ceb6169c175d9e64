# SPDX-License-Identifier: Apache-2.0
"""Int8 depthwise convolutions for cores with the DSP extension: one channel at a time, in a plane of int16."""

import math
from typing import Any

import numpy.typing as npt
from tvm import tirx

from utvm.compiler.integer.dsp.convolution import clamp, variant
from utvm.compiler.integer.dsp.packing import folded_bias, geometry, plane_stream, settle
from utvm.compiler.integer.packed.convolution import Pointers, call_helper, operator_of_steps, with_forms
from utvm.compiler.integer.records import Convolution, Operator
from utvm.compiler.integer.windows import channelwise

_WIDTHS = (48, 24, 12, 8)  # How many pixels of a row are made together where memory counts.
_LITTLE = 160  # Bytes of a plane; less is not worth narrower parts.
_MOST_PITCH = 504  # Bytes; what a load reaches in the plane's third row.
_LEAST_PIXELS = 4  # Fewer are not worth a plane for each channel.
_MOST_CHANNELS = 4095  # What an addition of a constant reaches.


def make_planes_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for it.

    They hold for filters of up to three rows and columns side by side, and steps to the side of one or two.

    Args:
        record: depthwise.
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
        "stream": plane_stream(settled.weights, folded_bias(settled), table),
        "geometry": geometry(settled),
    }
    height, width, _ = record.output_shape
    widths = [each for each in _WIDTHS if width % each == 0]
    enough = next((each for each in widths if 3 * _pitch(record, each) <= _LITTLE), 0)
    sizes = [(height, width), *((1, each) for each in widths if each >= enough)]
    sizes = [size for size in sizes if _pitch(record, size[1]) <= _MOST_PITCH]
    return with_forms([_made(settled, constants, *size) for size in sizes]) if sizes else None


def _made(record: Convolution, constants: dict[str, npt.NDArray[Any]], tall: int, pixels: int) -> Operator:
    """Make the operator.

    Args:
        tall, pixels: rows that are made together, channel by channel, and how many pixels of each: all of a row,
            or of one row.
    """
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
        call_helper(helper, to, *(at[each] for each in ("data", "geometry", "plane", "stream")), *place, tall)
        clamp(record, to, together * channels)

    own = {"plane": (lines * pitch // 4, "int32")}
    overlap = (channelwise(record, together),)
    steps = height * width // together
    return operator_of_steps(record, "depthwise_conv2d_int8", overlap, constants, own, steps, band)


def _pitch(record: Convolution, pixels: int) -> int:
    # Pixels are made two by two: the last one alone reads as many values as two do.
    seen = pixels + 2 + pixels % 2 if record.strides[1] == 1 else 2 * pixels + 2
    return 4 * -(-seen // 2)
