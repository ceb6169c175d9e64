# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions for cores with the DSP extension: SMLAD on windows that are expanded to int16.

Four output pixels at a time: their windows become columns, int16 ``[pairs][4][2]`` in a workspace; the columns
are multiplied by all channels' weights into int32 sums, which are requantised into the output. A single pixel
that sees the whole input (a dense layer) is multiplied as it lies there.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.integer.dsp.dot import (
    PIXELS,
    accumulate_columns,
    accumulate_vector,
    tensorize_columns,
    tensorize_vector,
)
from utvm.compiler.integer.dsp.packing import folded_bias, geometry, packed_weights, residual_table, settle
from utvm.compiler.integer.kernel import described
from utvm.compiler.integer.records import Convolution, Operator
from utvm.compiler.integer.windows import distance


def make_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for its numbers.

    Args:
        record: not depthwise.
    """
    record, table = settle(record)
    residual = None if record.residual is None else residual_table(record.residual)
    if table is None or (record.residual is not None and residual is None):
        return None
    return _Maker(record, table, residual).make()


class _Maker:
    def __init__(self, record: Convolution, table: Any, residual: Any) -> None:
        self._record = record
        self._residual = residual
        height, width, self._outputs = record.output_shape
        self._width = width
        self._pixels = height * width
        self._length = record.weights[0].size
        self._is_vector = self._pixels == 1 and self._sees_whole_input() and self._length % 4 == 0
        self._together = 1 if self._is_vector else PIXELS
        weights = packed_weights(record.weights.reshape(self._outputs, -1))
        self._pairs = weights.shape[1]
        bias = np.zeros(2 * len(weights), np.int32)
        bias[: self._outputs] = folded_bias(record)
        self._constants: dict[str, npt.NDArray[np.int32]] = {"weights": weights, "bias": bias, "scales": table}
        if not self._is_vector and not self._reads_pixels():
            self._constants["geometry"] = geometry(record)
        if residual is not None:
            self._constants["residual"] = residual

    def make(self) -> Operator:
        record = self._record
        channels = len(self._constants["bias"])
        tensorize = tensorize_vector if self._is_vector else tensorize_columns
        function = tensorize(self._function(channels), channels, self._pairs)
        overlap: list[int | None] = [distance(record, PIXELS)]
        if record.residual is not None:
            overlap.append(0)
        return Operator(
            described(function, "conv2d_int8", overlap, record.macs),
            tuple(self._constants.values()),
            tuple(overlap),
            record.macs,
        )

    def _sees_whole_input(self) -> bool:
        height, width, _ = self._record.input_shape
        return self._record.weights.shape[1:3] == (height, width) and not any(self._record.padding)

    def _reads_pixels(self) -> bool:
        """Return whether a window is just a pixel, and the next pixel the next window."""
        record = self._record
        is_pixel = record.weights.shape[1:3] == (1, 1) and record.strides == (1, 1) and not any(record.padding)
        return is_pixel and record.input_shape[2] % 4 == 0

    def _function(self, channels: int) -> Any:
        record, together = self._record, self._together
        with IRBuilder() as builder, script.prim_func(s_tir=True):
            script.func_name("main")
            inputs = {"data": int(np.prod(record.input_shape))}
            if record.residual is not None:
                inputs["other"] = self._pixels * self._outputs
            self._arguments = {
                name: script.arg(name, script.Buffer((size,), "int8")) for name, size in inputs.items()
            }
            for name, array in self._constants.items():
                self._arguments[name] = script.arg(name, script.Buffer(array.shape, "int32"))
            output = script.arg("output", script.Buffer((self._pixels * self._outputs,), "int8"))
            with script.sblock("root"):
                shape = (channels,) if self._is_vector else (channels, together)
                sums = self._own("sums", shape, "int32")
                result = None
                if record.residual is not None:
                    result = self._own("result", (together * self._outputs,), "int8")
                if self._is_vector:
                    values = self._arguments["data"]
                    self._tile(0, sums, values, output, result)
                else:
                    values = self._own("columns", (self._pairs, PIXELS, 2), "int16")
                    window = None
                    if not self._reads_pixels() and record.input_shape[2] % 4:
                        window = self._own("window", (2 * self._pairs,), "int8")
                    with script.serial(0, -(-self._pixels // PIXELS)) as tile:
                        self._columns(tile, values, window)
                        self._tile(tile, sums, values, output, result)
        return builder.get()

    def _own(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        buffer = script.sblock_alloc_buffer(shape, dtype)
        IRBuilder.name(name, buffer)
        return buffer

    def _columns(self, tile: Any, columns: Any, window: Any) -> None:
        """Write the block that expands the windows of a tile."""
        channels = self._record.input_shape[2]
        data = self._arguments["data"]
        with script.sblock("columns"):
            number = script.axis.spatial(-(-self._pixels // PIXELS), tile)
            pixel = number * PIXELS
            script.reads(_whole(data))
            script.writes(*(_whole(each) for each in (columns, window) if each is not None))
            to = columns.access_ptr("w")
            if self._reads_pixels():
                source = tirx.address_of(data[pixel * channels])
                _call("pixel_columns", to, source, channels, self._count(number))
                return
            place = [tirx.floordiv(pixel, self._width), tirx.floormod(pixel, self._width)]
            read = [data.access_ptr("r"), self._arguments["geometry"].access_ptr("r"), *place, self._count(number)]
            if window is None:
                _call("window_columns", to, *read)
            else:
                _call("gathered_columns", to, *read, window.access_ptr("rw"))

    def _tile(self, tile: Any, sums: Any, values: Any, output: Any, result: Any) -> None:
        """Write the blocks that multiply and requantise a tile."""
        bias, weights = self._arguments["bias"], self._arguments["weights"]
        channels = len(self._constants["bias"])
        if self._is_vector:
            with script.serial(0, channels) as loop, script.sblock("first"):
                channel = script.axis.spatial(channels, loop)
                script.buffer_store(sums, bias[channel], [channel])
            accumulate_vector(sums, values, weights, channels, self._pairs)
        else:
            with script.grid(channels, PIXELS) as (outer, inner), script.sblock("first"):
                channel, pixel = script.axis.spatial(channels, outer), script.axis.spatial(PIXELS, inner)
                script.buffer_store(sums, bias[channel], [channel, pixel])
            accumulate_columns(sums, values, weights, channels, self._pairs)
        with script.sblock("output"):
            number = script.axis.spatial(-(-self._pixels // self._together), tile)
            first = number * self._together * self._outputs
            count = self._count(number)
            tables = {name: self._arguments[name] for name in ("scales", "residual") if name in self._arguments}
            script.reads(*(_whole(each) for each in (sums, *tables.values())))
            script.writes(*(_whole(each) for each in (output, result) if each is not None))
            to = tirx.address_of(output[first])
            made = to if result is None else result.access_ptr("rw")
            helper = "requantize_vector" if self._is_vector else "requantize_columns"
            extents = [self._outputs] if self._is_vector else [self._outputs, count]
            table = tables["scales"].access_ptr("r")
            _call(helper, made, sums.access_ptr("r"), table, *extents, self._record.low, self._record.high)
            if result is not None:
                other = tirx.address_of(self._arguments["other"][first])
                table = tables["residual"].access_ptr("r")
                _call("add_residual", to, result.access_ptr("r"), other, table, count * self._outputs)

    def _count(self, number: Any) -> Any:
        """Return how many pixels a tile has."""
        if self._pixels % self._together == 0:
            return self._together
        return tirx.min(self._pixels - number * self._together, tirx.IntImm("int32", self._together))


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, int(extent)) for extent in buffer.shape)]


def _call(helper: str, *arguments: Any) -> None:
    script.evaluate(script.call_extern("int32", helper, *arguments))
