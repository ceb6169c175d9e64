# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions for any core: two pixels in a word, so that one multiplication is two.

One helper of C makes a part of the output: ``convolve_tile`` four pixels, ``depthwise_line`` a row. Each is
printed once for all layers, and reads a layer's geometry as it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.integer.dsp.packing import geometry
from utvm.compiler.integer.kernel import THRIFTY, described
from utvm.compiler.integer.packed.constants import groups, padded_weights, residual_tables, settle_folded
from utvm.compiler.integer.records import Convolution, Int32, Operator
from utvm.compiler.integer.windows import channelwise, distance

_PIXELS = 4
_NARROW = (8, 7, 6, 5, 4)  # How many pixels of a row of a depthwise layer are made together where memory counts.


class Pointers(dict[str, Any]):
    """Pointers to the beginnings of what a step reads, and of its own buffers, by name."""

    def __init__(self, read: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        super().__init__({each: buffer.access_ptr("r") for each, buffer in read.items()})
        self.update({each: buffer.access_ptr("rw") for each, buffer in written.items()})
        self._buffers = {**read, **written}

    def to(self, name: str, element: Any) -> Any:
        """Return a pointer to an element."""
        return tirx.address_of(self._buffers[name][element])


_Body = Callable[[Any, Any, Pointers], None]  # Of a step's number, the output, and pointers to the rest.


def make_packed(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for its numbers."""
    settled = settle_folded(record)
    if settled is None:
        return None
    if record.depthwise:
        return _depthwise(*settled)
    return _dense(*settled) if _is_dense(record) else _convolution(*settled)


def _is_dense(record: Convolution) -> bool:
    return record.weights[0].shape == record.input_shape and not any(record.padding) and record.residual is None


def _dense(record: Convolution, table: Int32) -> Operator:
    constants: dict[str, npt.NDArray[Any]] = {"weights": record.weights.ravel(), "scales": table.ravel()}
    length, channels = record.weights[0].size, len(record.weights)

    def all_channels(_: Any, output: Any, at: Pointers) -> None:
        read = [at["data"], length, at["weights"], at["scales"]]
        call_helper("dense_channels", output.access_ptr("w"), *read, channels, record.low, record.high)

    overlap = (distance(record, 1, reads_again=True),)
    return operator_of_steps(record, "conv2d_int8", overlap, constants, {}, 1, all_channels)


def _convolution(record: Convolution, table: Int32) -> Operator | None:
    rows, columns, depth = record.input_shape
    if record.weights.shape[1:3] == record.strides == (1, 1) and not any(record.padding):
        # Each window is a pixel: in one row, no tile has pixels of two.
        record = replace(record, input_shape=(1, rows * columns, depth))
    height, width, channels = record.output_shape
    weights = padded_weights(record.weights.reshape(channels, -1))
    together = groups(weights)
    tables = None if record.residual is None else residual_tables(record.residual)
    if together is None or (record.residual is not None and tables is None):
        return None
    table[:, 3] += together << 8
    constants: dict[str, npt.NDArray[Any]] = {"weights": weights.ravel(), "scales": table.ravel()}
    constants["geometry"] = geometry(record)
    if tables is not None:
        constants["tables"] = tables
    pixels, length = height * width, weights.shape[1]
    own = {"columns": (2 * length, "int32")}
    if tables is not None:
        own["result"] = (_PIXELS * channels, "int8")

    def tile(number: Any, output: Any, at: Pointers) -> None:
        first = number * _PIXELS
        to = tirx.address_of(output[first * channels])
        count = tirx.min(pixels - first, tirx.IntImm("int32", _PIXELS)) if pixels % _PIXELS else _PIXELS
        read = [at["data"], at["geometry"], at["columns"]]
        place = [tirx.floordiv(first, width), tirx.floormod(first, width), count]
        limits = [record.low, record.high, record.output_zero]
        made = at.get("result", to)
        call_helper("convolve_tile", made, *read, *place, at["weights"], at["scales"], channels, *limits)
        if tables is not None:
            other = at.to("other", first * channels)
            call_helper("add_tables", to, at["result"], other, at["tables"], count * channels)

    overlap: tuple[int | None, ...] = (distance(record, _PIXELS), 0)[: 1 if tables is None else 2]
    return operator_of_steps(record, "conv2d_int8", overlap, constants, own, -(-pixels // _PIXELS), tile)


def _depthwise(record: Convolution, table: Int32) -> Operator | None:
    if record.residual is not None:
        return None
    _, width, _ = record.output_shape
    weights = record.weights[..., 0].transpose(0, 2, 1)
    constants: dict[str, npt.NDArray[Any]] = {
        "weights": np.ascontiguousarray(weights).ravel(),
        "scales": table.ravel(),
    }
    constants["geometry"] = geometry(record)
    # One that does not shrink its input has no gain from it that is worth the time.
    narrow = next((each for each in _NARROW if width % each == 0 and record.strides[0] > 1), width)
    return with_forms([_line(record, constants, pixels) for pixels in dict.fromkeys((width, narrow))])


def _line(record: Convolution, constants: Mapping[str, npt.NDArray[Any]], pixels: int) -> Operator:
    """Make a depthwise operator that computes so many pixels of a row together, channel by channel."""
    height, width, channels = record.output_shape
    _, rows, columns, _ = record.weights.shape
    # Up to a step behind the last window is pointed to.
    seen = pixels * record.strides[1] + (columns - 1) * record.dilation[1] + 1
    own = {"plane": (seen * rows, "int8")}

    def line(number: Any, output: Any, at: Pointers) -> None:
        first = number * pixels
        to = tirx.address_of(output[first * channels])
        place = [tirx.floordiv(first, width), tirx.floormod(first, width), pixels]
        read = [at["data"], at["geometry"], at["plane"], *place, at["weights"], at["scales"]]
        copies = channels // record.input_shape[2]
        call_helper("depthwise_line", to, *read, copies, record.low, record.high, record.output_zero)

    overlap = (channelwise(record, pixels),)
    return operator_of_steps(
        record, "depthwise_conv2d_int8", overlap, constants, own, height * width // pixels, line
    )


def operator_of_steps(
    record: Convolution,
    name: str,
    overlap: tuple[int | None, ...],
    constants: Mapping[str, npt.NDArray[Any]],
    own: Mapping[str, tuple[int, str]],
    steps: int,
    body: _Body,
) -> Operator:
    """Make an operator of helpers' calls, one step after the other.

    Args:
        name: what the report calls it.
        own: elements and type of each buffer of its own.
    """
    size = int(np.prod(record.output_shape))
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        read = {"data": script.arg("data", script.Buffer((int(np.prod(record.input_shape)),), "int8"))}
        if record.residual is not None:
            read["other"] = script.arg("other", script.Buffer((size,), "int8"))
        for each, array in constants.items():
            read[each] = script.arg(each, script.Buffer(array.shape, str(array.dtype)))
        output = script.arg("output", script.Buffer((size,), "int8"))
        with script.sblock("root"):
            written = {each: _buffer(each, *what) for each, what in own.items()}
            with script.serial(0, steps) as loop, script.sblock("step"):
                number = script.axis.spatial(steps, loop)
                script.reads(*map(_whole, read.values()))
                script.writes(*map(_whole, (output, *written.values())))
                body(number, output, Pointers(read, written))
    function = described(builder.get(), name, overlap, record.macs)
    return Operator(function, tuple(constants.values()), overlap, record.macs)


def with_forms(forms: Sequence[Operator]) -> Operator:
    """Return the first of operators that differ in speed and memory only; each next one needs less memory."""
    made = forms[-1]
    for form in reversed(forms[:-1]):
        made = replace(form, function=form.function.with_attr(THRIFTY, made.function))
    return made


def _buffer(name: str, elements: int, dtype: str) -> Any:
    buffer = script.sblock_alloc_buffer((elements,), dtype)
    IRBuilder.name(name, buffer)
    return buffer


def _whole(buffer: Any) -> Any:
    return buffer[0 : int(buffer.shape[0])]


def call_helper(helper: str, *arguments: Any) -> None:
    """Write a call of a helper into the function that is being built."""
    script.evaluate(script.call_extern("int32", helper, *arguments))
