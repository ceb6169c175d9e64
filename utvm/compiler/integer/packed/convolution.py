# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions for any core: two pixels in a word, so that one multiplication is two.

One helper of C makes a part of the output: ``convolve_tile`` four pixels, ``depthwise_line`` a row. Each is
printed once for all layers, and reads a layer's geometry as it runs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.integer.dsp.packing import geometry
from utvm.compiler.integer.kernel import described
from utvm.compiler.integer.packed.constants import groups, padded_weights, residual_tables, settle_folded
from utvm.compiler.integer.records import Convolution, Int32, Operator
from utvm.compiler.integer.windows import distance

_PIXELS = 4

_Body = Callable[[Any, Any, Mapping[str, Any]], None]  # Of a step's number, the output, and pointers to the rest.


def make_packed(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for its numbers."""
    settled = settle_folded(record)
    if settled is None:
        return None
    return _depthwise(*settled) if record.depthwise else _convolution(*settled)


def _convolution(record: Convolution, table: Int32) -> Operator | None:
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
    # One pixel alone is multiplied as it is.
    own = {"columns": (2 * length, "int32"), "window": (2 * length, "int8")}
    if pixels == 1:
        own = {"columns": (1, "int32"), "window": (length, "int8")}
    if tables is not None:
        own["result"] = (_PIXELS * channels, "int8")

    def tile(number: Any, output: Any, at: Mapping[str, Any]) -> None:
        first = number * _PIXELS
        to = tirx.address_of(output[first * channels])
        count = tirx.min(pixels - first, tirx.IntImm("int32", _PIXELS)) if pixels % _PIXELS else _PIXELS
        read = [at["data"], at["geometry"], at["columns"], at["window"]]
        place = [tirx.floordiv(first, width), tirx.floormod(first, width), count]
        limits = [record.low, record.high, record.output_zero]
        made = at.get("result", to)
        call_helper("convolve_tile", made, *read, *place, at["weights"], at["scales"], channels, *limits)
        if tables is not None:
            other = at["other"](first * channels)
            call_helper("add_tables", to, at["result"], other, at["tables"], count * channels)

    overlap: tuple[int | None, ...] = (distance(record, _PIXELS), 0)[: 1 if tables is None else 2]
    return operator_of_steps(record, "conv2d_int8", overlap, constants, own, -(-pixels // _PIXELS), tile)


def _depthwise(record: Convolution, table: Int32) -> Operator | None:
    if record.residual is not None:
        return None
    height, width, channels = record.output_shape
    _, rows, columns, _ = record.weights.shape
    weights = record.weights[..., 0].transpose(0, 2, 1)
    constants: dict[str, npt.NDArray[Any]] = {
        "weights": np.ascontiguousarray(weights).ravel(),
        "scales": table.ravel(),
    }
    constants["geometry"] = geometry(record)
    seen = (width - 1) * record.strides[1] + (columns - 1) * record.dilation[1] + 1
    # Up to a step behind the last window is pointed to.
    own = {"plane": ((seen + record.strides[1]) * rows, "int8")}

    def line(number: Any, output: Any, at: Mapping[str, Any]) -> None:
        to = tirx.address_of(output[number * (width * channels)])
        read = [at["data"], at["geometry"], at["plane"], number, at["weights"], at["scales"]]
        copies = channels // record.input_shape[2]
        call_helper("depthwise_line", to, *read, copies, record.low, record.high, record.output_zero)

    overlap = (distance(record, width, reads_again=True),)
    return operator_of_steps(record, "depthwise_conv2d_int8", overlap, constants, own, height, line)


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
                at = {each: buffer.access_ptr("r") for each, buffer in read.items() if each != "other"}
                at |= {each: buffer.access_ptr("rw") for each, buffer in written.items()}
                if "other" in read:
                    at["other"] = lambda first: tirx.address_of(read["other"][first])
                body(number, output, at)
    function = described(builder.get(), name, overlap, record.macs)
    return Operator(function, tuple(constants.values()), overlap, record.macs)


def _buffer(name: str, elements: int, dtype: str) -> Any:
    buffer = script.sblock_alloc_buffer((elements,), dtype)
    IRBuilder.name(name, buffer)
    return buffer


def _whole(buffer: Any) -> Any:
    return buffer[0 : int(buffer.shape[0])]


def call_helper(helper: str, *arguments: Any) -> None:
    """Write a call of a helper into the function that is being built."""
    script.evaluate(script.call_extern("int32", helper, *arguments))
