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


def make_with_dsp(record: Convolution, dual: bool, wide: bool, held: bool) -> Operator | None:
    """Make the operator, or return None if the kernels do not support the record.

    Args:
        dual: for a core that issues two instructions in a cycle.
        wide: with weights of 16 bits where the layer has enough outputs.
        held: with the weights copied to RAM, if they are small beside the layer's input and output.
    """
    settled, table = common.settle(record)
    if table is None:
        return None
    if record.weights[0].shape == record.input_shape and not any(record.padding) and record.residual is None:
        return None if held else _dense(settled, table, dual)
    pixels = record.pixels
    form = 2 if wide and pixels >= _LEAST_PIXELS_WIDE else int(_can_share(settled))
    stream = _stream(settled, table, 2, form)
    tensors = math.prod(record.input_shape) + math.prod(record.output_shape)
    if record.whole_rows:
        tensors *= record.whole_rows // record.output_shape[0]
    if held and (stream.nbytes > max(_LEAST_HELD, tensors // 3) or pixels < _LEAST_TILES * _PIXELS):
        return None
    return _convolution(settled, stream, f"dsp_tile_{form}_{dual:d}_{variant(record)}", held)


def variant(record: Convolution) -> str:
    return f"{int(record.low < record.output_zero)}_{7 if (record.low, record.high) == (0, 127) else 8}"


def clamp(record: Convolution, output: Any, count: Any) -> None:
    """Emit a call that clamps bytes if the kernel's own limits differ from the record's."""
    if (record.low, record.high) not in ((0, 127), (-128, 127)):
        common.call_helper("clamp_bytes", output, count, record.low, record.high)


def _dense(record: Convolution, table: Int32, dual: bool) -> Operator:
    channels, length = len(record.bias), record.weights[0].size
    if channels <= 2:
        return _few(record, _stream(record, table, 2, 2), length)
    form = int(_can_share(record))
    stream = _stream(record, table, 4, form)
    count = -(-length // 4) * 4
    groups, rest = divmod(channels, 4)
    helper = f"dsp_dense_{form}_{dual:d}_{variant(record)}"

    def all_channels(_: Any, output: Any, at: common.Pointers) -> None:
        to = output.access_ptr("w")
        common.call_helper("expand_values", at["values"], at["data"], length)
        if groups:
            common.call_helper(helper, to, at["values"], at["stream"], groups, count)
        if rest:
            common.call_helper(helper, at["last"], at["values"], at.to("stream", groups * (count + 16)), 1, count)
            common.call_helper("spread_bytes", tirx.address_of(output[4 * groups]), 1, at["last"], 1, rest)
        clamp(record, to, channels)

    own = {"values": (count // 2, "int32")} | ({"last": (4, "int8")} if rest else {})
    overlap = (distance(record, 1),)
    return common.operator_of_steps(record, "conv2d_int8", overlap, {"stream": stream}, own, 1, all_channels)


def _few(record: Convolution, stream: Int32, length: int) -> Operator:
    def all_channels(_: Any, output: Any, at: common.Pointers) -> None:
        more = [len(record.bias), length, record.low, record.high]
        common.call_helper("dsp_few", output.access_ptr("w"), at["data"], at["stream"], *more)

    overlap = (distance(record, 1),)
    return common.operator_of_steps(record, "conv2d_int8", overlap, {"stream": stream}, {}, 1, all_channels)


def _convolution(record: Convolution, stream: Int32, helper: str, held: bool) -> Operator | None:
    height, width, channels = record.output_shape
    depth, pixels = record.input_shape[2], height * width
    tables = None if record.residual is None else common.residual_tables(record.residual)
    if record.residual is not None and tables is None:
        return None
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
    if tables is not None:
        constants["tables"] = tables
        own["result"] = (_PIXELS * channels, "int8")

    def tile(number: Any, output: Any, at: common.Pointers) -> None:
        first = number * _PIXELS
        to = tirx.address_of(output[first * channels])
        count = tirx.min(pixels - first, tirx.IntImm("int32", _PIXELS)) if pixels % _PIXELS else _PIXELS
        _columns(record, first, count, at)
        target = at.get("result", to)
        weights = "held" if held else "stream"
        if held:
            common.call_helper("hold_words", at["held"], at["stream"], len(stream), number)
        if channels > 1:
            even = channels // 2 * 2
            common.call_helper(helper, target, at["columns"], at[weights], even, pairs, count, channels)
        if channels % 2:
            stream_of_last = at.to(weights, channels // 2 * group)
            common.call_helper(helper, at["last"], at["columns"], stream_of_last, 2, pairs, count, 2)
            place = tirx.address_of(output[(first + 1) * channels - 1])
            place = place if tables is None else at.to("result", channels - 1)
            common.call_helper("spread_bytes", place, channels, at["last"], 2, count)
        clamp(record, target, count * channels)
        if tables is not None:
            other = at.to("other", first * channels)
            common.call_helper("add_tables", to, at["result"], other, at["tables"], count * channels)

    overlap: tuple[int | None, ...] = (distance(record, _PIXELS), 0)[: 1 if tables is None else 2]
    return common.operator_of_steps(record, "conv2d_int8", overlap, constants, own, -(-pixels // _PIXELS), tile)


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


def _stream(record: Convolution, table: Int32, together: int, form: int) -> Int32:
    """For each ``together`` channels their biases, weights and scales, as ``dsp_tile`` or ``dsp_dense`` reads them."""
    # Of each four values, two words of the first two channels, then two of the others.
    words = _packed_weights(record, together, form)
    groups = 2 * len(words) // together
    if together == 4:
        words = words.reshape(groups, 2, -1, 2).transpose(0, 2, 1, 3).reshape(groups, -1)
    biases, scales = _in_groups(_biases(record, form), table, together)
    return np.hstack([biases, words, scales]).ravel()


def _biases(record: Convolution, form: int) -> npt.NDArray[np.int64]:
    bias = common.folded_bias(record)
    if form == 1:
        bias[1::2] = bias[: len(bias) // 2 * 2 : 2] + 256 * bias[1::2]
    return bias * 2 if form == 2 else bias


def halves(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Int32:
    return np.asarray((low & 0xFFFF | high.astype(np.int64) << 16).astype(np.uint32).view(np.int32))


def _in_groups(bias: npt.NDArray[np.int64], table: Int32, size: int) -> tuple[Int32, Int32]:
    groups = -(-len(bias) // size)
    biases, scales = np.zeros(groups * size, np.int32), np.zeros((groups * size, 3), np.int32)
    biases[: len(bias)], scales[: len(bias)] = bias.astype(np.uint32).view(np.int32), table
    scales[len(bias) :, 2] = 1
    return biases.reshape(groups, -1), scales.reshape(groups, -1)


_WIDTHS = (48, 24, 12, 8)  # Widths of a block of a row if memory counts, in pixels.
_LITTLE = 160  # Bytes of a plane; smaller planes are not split.
_MOST_PITCH = 504  # Bytes; the reach of a load in the plane's third row.
_LEAST_PIXELS = 4  # Minimum pixels that justify a plane per channel.
_MOST_CHANNELS = 4095  # Largest immediate of an addition.


def make_planes_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, undilated and of horizontal stride 1 or 2; None if unsupported."""
    settled, table = common.settle(record)
    channels = len(record.bias)
    if table is None or record.residual is not None or record.strides[1] > 2:
        return None
    if record.dilation != (1, 1) or channels > _MOST_CHANNELS or math.prod(record.output_shape[:2]) < _LEAST_PIXELS:
        return None
    stream = (_plane_stream if _is_small(record) else _filter_stream)(settled, table)
    constants: dict[str, npt.NDArray[Any]] = {"stream": stream, "geometry": common.geometry(settled)}
    height, width, _ = record.output_shape
    widths = [item for item in _WIDTHS if width % item == 0]
    enough = next((width for width in widths if 3 * _pitch(record, width) <= _LITTLE), 0)
    sizes = [(height, width), *((1, width) for width in widths if width >= enough)]
    if _is_small(record):
        sizes = [size for size in sizes if _pitch(record, size[1]) <= _MOST_PITCH]
    return common.with_forms([_plane(settled, constants, *size) for size in sizes]) if sizes else None


def _plane(record: Convolution, constants: dict[str, npt.NDArray[Any]], tall: int, pixels: int) -> Operator:
    height, width, channels = record.output_shape
    copies = channels // record.input_shape[2]
    down, across = record.strides
    _, rows, columns, _ = record.weights.shape
    pitch, lines = _pitch(record, pixels), (tall - 1) * down + max(rows, 3)
    if _is_small(record):
        helper = f"dsp_depthwise_{lines}_{copies}_{across}_{down}_{pitch}_{pixels}_{channels}_{variant(record)}"
    else:
        filter_ = f"{rows}_{columns}_{across}_{down}_{pitch // 2}_{pixels}_{channels}_{variant(record)[2:]}"
        helper = f"dsp_filters_{lines}_{copies}_{filter_}"
    together = tall * pixels

    def band(number: Any, output: Any, at: common.Pointers) -> None:
        first = number * together
        to = tirx.address_of(output[first * channels])
        place = [tirx.floordiv(first, width), tirx.floormod(first, width)]
        common.call_helper(helper, to, *(at[item] for item in ("data", "geometry", "plane", "stream")), *place, tall)
        clamp(record, to, together * channels)

    own = {"plane": (lines * pitch // 4, "int32")}
    overlap = (channelwise(record, together),)
    steps = height * width // together
    return common.operator_of_steps(record, "depthwise_conv2d_int8", overlap, constants, own, steps, band)


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

    overlap = (distance(record, 1, reads_again=True),)
    own = {"window": (record.weights[0].size * channels, "int8")}
    return common.operator_of_steps(
        record, "depthwise_conv2d_int8", overlap, constants, own, record.output_shape[0], row
    )
