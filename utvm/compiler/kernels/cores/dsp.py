# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions with Arm's DSP extension: SMLAD multiplies int16 columns of four output pixels."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from utvm.compiler.kernels.cores import constants as common
from utvm.compiler.kernels.records import Convolution, Int32, Operator, channelwise, distance

_PIXELS = 4
_SHARED_LIMIT = 2**23  # Smaller sums can be multiplied by 256 in 32 bits.
_LEAST_HELD = 4096  # Bytes of weights that any layer may hold in RAM.
_LEAST_TILES = 8  # Tiles that justify copying the weights.
_LEAST_PIXELS_WIDE = 96  # Pixels that justify a byte of flash: weights of 16 bits save instructions.


def make_with_dsp(record: Convolution, dual: bool, wide: bool, held: bool, packed: bool = False) -> Operator | None:
    """Make the operator, or return None if the kernels do not support the record.

    Args:
        dual: for a core that issues two instructions in a cycle.
        wide: with weights of 16 bits where the layer has enough outputs.
        held: with the weights copied to RAM, if they are small beside the layer's input and output.
        packed: with biases and shifts in one word.
    """
    settled, table = common.settle(record)
    scales = common.packed_scales(settled, table) if packed and table is not None else table
    if table is None or scales is None:
        return None
    if record.weights[0].shape == record.input_shape and not any(record.padding) and record.residual is None:
        return None if held else _dense(settled, table if len(settled.bias) <= 2 else scales, dual)
    pixels = record.pixels
    form = 2 if wide and pixels >= _LEAST_PIXELS_WIDE else int(_can_share(settled))
    stream = _stream(settled, scales, 2, form)
    tensors = math.prod(record.input_shape) + math.prod(record.output_shape)
    if record.whole_rows:
        tensors *= record.whole_rows // record.output_shape[0]
    if held and (stream.nbytes > max(_LEAST_HELD, tensors // 3) or pixels < _LEAST_TILES * _PIXELS):
        return None
    helper = f"dsp_tile_{form}_{packed:d}_{dual:d}_{variant(record)}"
    return _convolution(settled, stream, helper, held, _unit(settled, scales))


def variant(record: Convolution) -> str:
    return f"{int(record.low < record.output_zero)}_{7 if (record.low, record.high) == (0, 127) else 8}"


def clamp(record: Convolution, output: Any, count: Any) -> None:
    """Emit a call that clamps bytes if the kernel's own limits differ from the record's."""
    if (record.low, record.high) not in ((0, 127), (-128, 127)):
        common.call_helper("clamp_bytes", output, count, record.low, record.high)


def _dense(record: Convolution, scales: Int32, dual: bool) -> Operator:
    channels, length = len(record.bias), record.weights[0].size
    if channels <= 2:
        return _few(record, _stream(record, scales, 2, 2), length)
    form = int(_can_share(record))
    stream, unit = _stream(record, scales, 4, form), _unit(record, scales)
    packed = len(unit)
    count = -(-length // 4) * 4
    groups, rest = divmod(channels, 4)
    helper = f"dsp_dense_{form}_{packed}_{dual and not packed:d}_{variant(record)}"

    def all_channels(_: Any, output: Any, at: common.Pointers) -> None:
        to = output.access_ptr("w")
        common.call_helper("expand_values", at["values"], at["data"], length)
        if groups:
            common.call_helper(helper, to, at["values"], at["stream"], groups, count, *unit)
        if rest:
            last = at.to("stream", groups * (count + 16 - 8 * packed))
            common.call_helper(helper, at["last"], at["values"], last, 1, count, *unit)
            common.call_helper("spread_bytes", tirx.address_of(output[4 * groups]), 1, at["last"], 1, rest)
        clamp(record, to, channels)

    own = {"values": (count // 2, "int32")} | ({"last": (4, "int8")} if rest else {})
    return common.operator_of_steps(record, distance(record, 1), {"stream": stream}, own, 1, all_channels)


def _few(record: Convolution, stream: Int32, length: int) -> Operator:
    def all_channels(_: Any, output: Any, at: common.Pointers) -> None:
        more = [len(record.bias), length, record.low, record.high]
        common.call_helper("dsp_few", output.access_ptr("w"), at["data"], at["stream"], *more)

    return common.operator_of_steps(record, distance(record, 1), {"stream": stream}, {}, 1, all_channels)


def _convolution(record: Convolution, stream: Int32, helper: str, held: bool, unit: list[int]) -> Operator | None:
    channels, depth = record.output_shape[2], record.input_shape[2]
    pairs = -(-record.weights[0].size // 4) * 2
    group = len(stream) // -(-channels // 2)
    constants: dict[str, npt.NDArray[Any]] = {"stream": stream}
    own = {"columns": (4 * pairs, "int32")}
    if held:
        own["held"] = (len(stream), "int32")
    if channels % 2:
        own["last"] = (2 * _PIXELS, "int8")
    if not _reads_pixels(record):
        constants["geometry"] = common.geometry(record)
        if depth % 4:
            own["window"] = (2 * pairs, "int8")

    def tile(number: Any, target: Any, count: Any, at: common.Pointers) -> None:
        _columns(record, number * _PIXELS, count, at)
        to = target(0)
        weights = "held" if held else "stream"
        if held:
            common.call_helper("hold_words", at["held"], at["stream"], len(stream), number)
        if channels > 1:
            even = channels // 2 * 2
            common.call_helper(helper, to, at["columns"], at[weights], even, pairs, count, channels, *unit)
        if channels % 2:
            stream_of_last = at.to(weights, channels // 2 * group)
            common.call_helper(helper, at["last"], at["columns"], stream_of_last, 2, pairs, count, 2, *unit)
            last = target(channels - 1)
            common.call_helper("spread_bytes", last, channels, at["last"], 2, count)
        clamp(record, to, count * channels)

    return common.operator_of_tiles(record, distance(record, _PIXELS), constants, own, _PIXELS, tile)


def _reads_pixels(record: Convolution) -> bool:
    is_pixel = record.weights.shape[1:3] == record.strides == (1, 1) and not any(record.padding)
    return is_pixel and record.input_shape[2] % 4 == 0


def _columns(record: Convolution, first: Any, count: Any, at: common.Pointers) -> None:
    _, rows, columns, depth = record.weights.shape
    if _reads_pixels(record):
        common.call_helper("pixel_columns", at["columns"], at.to("data", first * depth), depth, count)
        return
    width = record.output_shape[1]
    read = [at["columns"], at["data"], at["geometry"], tirx.floordiv(first, width), tirx.floormod(first, width)]
    if depth % 4 == 0:
        common.call_helper("window_columns", *read, count)
    elif record.dilation == (1, 1):
        common.call_helper(f"gathered_columns_{rows}_{columns * depth}", *read, count, at["window"])
    else:
        common.call_helper("copied_columns", *read, count, at["window"], -(-rows * columns * depth // 4) * 4)


def _can_share(record: Convolution) -> bool:
    """Whether a halfword may be the weights of two channels, one 256 times the other; see ``dsp_tile``."""
    weights = record.weights.reshape(len(record.bias), -1)
    even, odd = weights[: len(weights) // 2 * 2 : 2], weights[1::2]
    largest = max((max(-low, high) for low, high in common.ranges(record)[1::2]), default=0)
    return largest < _SHARED_LIMIT and not bool(np.any((odd == -128) & (even < 0)))


def _packed_weights(record: Convolution, together: int, form: int) -> Int32:
    """Pack weights into words ``[channels / 2][pairs]`` of two channels and a pair of k; see ``dsp_tile`` for the form.

    Channels are zero-padded to a multiple of ``together``, k to one of four. From the lowest byte upwards a word is
    (o, k), (o + 1, k), (o, k'), (o + 1, k'): SXTB16 extracts one channel's pair. The pairs of four values are
    first and third, and second and fourth, because SXTB16 splits activations that way.
    """
    weights = record.weights.reshape(len(record.bias), -1)
    channels, length = weights.shape
    padded = np.zeros((-(-channels // together) * together, -(-length // 4) * 4), np.int64)
    padded[:channels, :length] = weights
    groups = len(padded) // 2
    parts = padded.reshape(groups, 2, -1, 2, 2).transpose(0, 2, 4, 3, 1)  # ..., four, pair, k', channel
    if form == 2:
        return halves(2 * parts[..., 0, :], 2 * parts[..., 1, :]).reshape(groups, -1)
    both = parts[..., 0] + 256 * parts[..., 1] if form else parts[..., 0] & 255 | parts[..., 1] << 8
    return halves(both[..., 0], both[..., 1]).reshape(groups, -1)


def _unit(record: Convolution, scales: Int32) -> list[int]:
    return [2 * record.output_zero + 1] if scales.shape[1] == 2 else []  # Packed ones have no column of offsets.


def _stream(record: Convolution, scales: Int32, together: int, form: int) -> Int32:
    """For each ``together`` channels their biases, weights and scales, as ``dsp_tile`` or ``dsp_dense`` reads them."""
    # Of each four values, two words of the first two channels, then two of the others.
    words = _packed_weights(record, together, form)
    groups = 2 * len(words) // together
    if together == 4:
        words = words.reshape(groups, 2, -1, 2).transpose(0, 2, 1, 3).reshape(groups, -1)
    if not _unit(record, scales):
        scales = np.column_stack([_biases(record, form), scales])
    padded = np.zeros((groups * together, scales.shape[1]), np.int32)
    padded[: len(scales)] = scales.astype(np.uint32).view(np.int32)
    return np.hstack([padded[:, 0].reshape(groups, -1), words, padded[:, 1:].reshape(groups, -1)]).ravel()


def _biases(record: Convolution, form: int) -> npt.NDArray[np.int64]:
    bias = common.folded_bias(record)
    if form == 1:
        bias[1::2] = bias[: len(bias) // 2 * 2 : 2] + 256 * bias[1::2]
    return bias * 2 if form == 2 else bias


def halves(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Int32:
    return np.asarray((low & 0xFFFF | high.astype(np.int64) << 16).astype(np.uint32).view(np.int32))


_WIDTHS = (48, 24, 12, 8)  # Widths of a block of a row if memory counts, in pixels.
_LITTLE = 160  # Bytes of a plane; smaller planes are not split.
_MOST_PITCH = 504  # Bytes; the reach of a load in the plane's third row.
_LEAST_PIXELS = 4  # Minimum pixels that justify a plane per channel.
_MOST_CHANNELS = 4095  # Largest immediate of an addition.


def make_planes_with_dsp(record: Convolution, packed: bool = False, least_taps: int = 1) -> Operator | None:
    """Make the operator, undilated and of horizontal stride 1 or 2; None if unsupported. packed: weights are bytes."""
    settled, table = common.settle(record)
    channels = len(record.bias)
    if table is None or record.residual is not None or record.strides[1] > 2 or record.weights[0].size < least_taps:
        return None
    if record.dilation != (1, 1) or channels > _MOST_CHANNELS or math.prod(record.output_shape[:2]) < _LEAST_PIXELS:
        return None
    stream: npt.NDArray[Any] = (_plane_stream if _is_small(record) else _filter_stream)(settled, table)
    words, scales = len(stream) // channels, common.packed_scales(settled, table)
    if packed:
        if scales is None:
            return None
        stream = np.hstack([settled.weights.reshape(channels, -1), scales.view(np.int8)]).ravel()
    constants: dict[str, npt.NDArray[Any]] = {"stream": stream, "geometry": common.geometry(settled)}
    height, width, _ = record.output_shape
    widths = [item for item in _WIDTHS if width % item == 0]
    enough = next((width for width in widths if 3 * _pitch(record, width) <= _LITTLE), 0)
    sizes = [(height, width), *((1, width) for width in widths if width >= enough)]
    if _is_small(record):
        sizes = [size for size in sizes if _pitch(record, size[1]) <= _MOST_PITCH]
    words *= packed
    return common.with_forms([_plane(settled, constants, words, *size) for size in sizes]) if sizes else None


def _plane(record: Convolution, constants: dict[str, npt.NDArray[Any]], words: int, tall: int, pixels: int) -> Operator:
    height, width, channels = record.output_shape
    copies = channels // record.input_shape[2]
    down, across = record.strides
    _, rows, columns, _ = record.weights.shape
    pitch, lines = _pitch(record, pixels), (tall - 1) * down + max(rows, 3)
    if _is_small(record):
        kind, filter_ = "depthwise", f"{across}_{down}_{pitch}_{pixels}_{channels}_{variant(record)}"
    else:
        kind, filter_ = "filters", f"{across}_{down}_{pitch // 2}_{pixels}_{channels}_{variant(record)[2:]}"
    helper = f"dsp_{kind}_{lines}_{copies}_{rows}_{columns}_{filter_}_{constants['stream'].dtype}"
    together, unit = tall * pixels, [2 * record.output_zero + 1] if words else []

    def band(number: Any, output: Any, at: common.Pointers) -> None:
        first = number * together
        to = tirx.address_of(output[first * channels])
        place = [tirx.floordiv(first, width), tirx.floormod(first, width)]
        read = [at[item] for item in ("data", "geometry", "plane", "stream")]
        common.call_helper(helper, to, *read, *place, tall, *unit)
        clamp(record, to, together * channels)

    own = {"plane": (lines * pitch // 4 + words, "int32")}
    steps = height * width // together
    return common.operator_of_steps(record, channelwise(record, together), constants, own, steps, band)


def _is_small(record: Convolution) -> bool:
    return bool(max(record.weights.shape[1:3]) <= 3)


def _pitch(record: Convolution, pixels: int) -> int:
    # Pixels are computed in pairs or fours: the last ones read as many values.
    columns, across = max(int(record.weights.shape[2]), 3), record.strides[1]
    together = 2 if _is_small(record) or pixels % 4 in (1, 2) else 4
    rounded = pixels if _is_small(record) and across == 2 else -(-pixels // together) * together
    return 4 * ((rounded * across - 2) // 2 + columns // 2 + 1)


def _plane_stream(record: Convolution, table: Int32) -> Int32:
    channels, rows, columns, _ = record.weights.shape
    square = np.zeros((channels, 3, 3), np.int64)
    square[:, :rows, :columns] = 2 * record.weights[..., 0].astype(np.int64)
    words = halves(square[..., :2], square[..., 1:]).reshape(channels, -1)
    return np.column_stack([words, 2 * common.folded_bias(record), table]).astype(np.int32).ravel()


def _filter_stream(record: Convolution, table: Int32) -> Int32:
    channels, rows, columns, _ = record.weights.shape
    padded = np.zeros((channels, rows, columns // 2 * 2 + 3), np.int64)
    padded[..., 1 : columns + 1] = record.weights[..., 0]
    words = halves(padded[..., 1::2], padded[..., 2::2])
    if record.strides[1] == 1:
        words = np.concatenate([words, halves(padded[..., :-1:2], padded[..., 1::2])], axis=2)
    return np.column_stack([words.reshape(channels, -1), common.folded_bias(record), table]).astype(np.int32).ravel()


def make_depthwise_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator of one output per input channel, channels in fours, no residual; None if unsupported."""
    record, table = common.settle(record)
    width, channels = record.output_shape[1:]
    if table is None or channels % 4 or record.input_shape[2] != channels or record.residual is not None:
        return None
    if record.dilation != (1, 1):
        return None  # Copying each window would take longer than the kernel saves.
    bytes_ = np.ascontiguousarray(record.weights.reshape(channels // 4, 4, -1).transpose(0, 2, 1))
    constants = {
        "weights": bytes_.view("<i4").astype(np.int32).ravel(),
        "bias": common.folded_bias(record).astype(np.int32),
    }
    constants |= {"scales": table, "geometry": common.geometry(record)}

    def row(number: Any, output: Any, at: common.Pointers) -> None:
        to = tirx.address_of(output[number * (width * channels)])
        read = [at["data"], at["geometry"], at["window"], number, at["weights"], at["bias"], at["scales"]]
        common.call_helper("depthwise_row", to, *read, record.low, record.high)

    own = {"window": (record.weights[0].size * channels, "int8")}
    return common.operator_of_steps(
        record, distance(record, 1, reads_again=True), constants, own, record.output_shape[0], row
    )
