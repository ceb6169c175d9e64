# SPDX-License-Identifier: Apache-2.0
"""Constants of int8 convolutions shared by the kernels of several cores, and operators that call C helpers."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.kernels import fixed_point, functions
from utvm.compiler.kernels.records import Convolution, Int32, Operator, Rescale, Residual

_SUM_LIMIT = 2**30  # Smaller sums can be doubled in 32 bits.
_PACKED_LIMIT = 2**23  # Biases below it leave a byte of their word for the shift.
_FOLDED_LIMIT = 2**28  # Smaller sums can be multiplied by four in 31 bits.


def folded_bias(record: Convolution) -> npt.NDArray[np.int64]:
    sums = record.weights.sum(axis=(1, 2, 3), dtype=np.int64)
    return np.asarray(record.bias.astype(np.int64) - record.input_zero * sums)


def settle(record: Convolution, limit: int = _SUM_LIMIT) -> tuple[Convolution, Int32 | None]:
    """Return the convolution to compute and its ``scale_sum`` table ``[channels][3]``: multiplier, offset, shift.

    Channels with a constant value (pruned, or beyond the activation's limits) get zero weights: the table gives
    their value. No table if a sum may reach ``limit``, or if shifts go left, are zero or overflow the offset.
    """
    channels = len(record.bias)
    multipliers = np.broadcast_to(record.rescale.multipliers, (channels,)).astype(np.int64)
    shifts = -np.broadcast_to(record.rescale.shifts, (channels,)).astype(np.int64)
    fixed = [_only_value(record, channel, low, high) for channel, (low, high) in enumerate(ranges(record))]
    live = np.array([value is None for value in fixed])
    settled = dataclasses.replace(
        record,
        weights=np.where(live[:, None, None, None], record.weights, 0).astype(np.int8),
        bias=np.where(live, record.bias, 0).astype(np.int32),
    )
    largest = max(max(abs(low), abs(high)) for low, high in ranges(settled))
    live_shifts = np.where(live, shifts, 1)
    table = None
    if largest < limit:
        table = _table(np.where(live, multipliers, 0), live_shifts, record.output_zero, largest)
    if table is not None:
        # A product of 0, plus the offset, shifted by one.
        table[~live, 1] = [2 * value for value in fixed if value is not None]
    return settled, table


def ranges(record: Convolution) -> list[tuple[int, int]]:
    bias = folded_bias(record)
    weights = record.weights.reshape(len(bias), -1).astype(np.int64)
    upwards, downwards = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    lows, highs = bias - 128 * upwards + 127 * downwards, bias + 127 * upwards - 128 * downwards
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _only_value(record: Convolution, channel: int, low: int, high: int) -> int | None:
    number = channel if len(record.rescale.multipliers) > 1 else 0
    multiplier, shift = int(record.rescale.multipliers[number]), int(record.rescale.shifts[number])
    limits = (record.low, record.high, record.output_zero)
    first, last = fixed_point.bounds((low, high), multiplier, shift, limits)
    return first if first == last else None


def _table(multipliers: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64], zero: int, largest: int) -> Int32 | None:
    if shifts.min() < 1 or shifts.max() > 30:
        return None
    offsets = (np.int64(1) << (shifts - 1)) + (np.int64(zero) << shifts)
    products = (largest * multipliers >> 31) + 2
    if (products + np.abs(offsets)).max() >= 2**31:
        return None
    return np.stack([multipliers, offsets, shifts], axis=1).astype(np.int32)


def biased_scales(settled: Convolution, table: Int32) -> Int32:
    """Return ``[channels][3]``: folded bias, multiplier, shift to the right; such a bias as makes a constant value."""
    multipliers, offsets, shifts = table.astype(np.int64).T
    fixed = multipliers == 0  # The offset is twice the value, and the shift one.
    biases = np.where(fixed, 2 * offsets - 4 * settled.output_zero, folded_bias(settled))
    return np.stack([biases, np.where(fixed, 2**30, multipliers), shifts], axis=1).astype(np.int32)


def packed_scales(settled: Convolution, table: Int32) -> Int32 | None:
    """Return ``[channels][2]``: 256 times the folded bias, plus the shift less one; the multiplier. None if unfit."""
    biases, multipliers, shifts = biased_scales(settled, table).T
    if np.abs(biases).max() >= _PACKED_LIMIT:
        return None
    return np.ascontiguousarray(np.stack([256 * biases + shifts - 1, multipliers], axis=1))


def settle_with_offset(record: Convolution) -> tuple[Convolution, Int32] | None:
    """As :func:`settle`, with the table of ``scale_folded``: bias, multiplier, offset, shift."""
    settled, table = settle(record, _FOLDED_LIMIT)
    folded = None if table is None else _fold(table)
    if folded is None:
        return None
    return settled, np.column_stack([folded_bias(settled), folded]).astype(np.int32)


def _fold(table: Int32) -> npt.NDArray[np.int64] | None:
    multipliers, offsets, shifts = table.astype(np.int64).T
    offsets = 2 * offsets + 1
    # A product of four times a sum below 2^28 is below 2^29.
    if shifts.max() > 30 or np.abs(offsets).max() >= 2**31 - 2**29:
        return None
    return np.stack([multipliers, offsets, shifts + 1], axis=1)


def residual_tables(residual: Residual) -> Int32 | None:
    """Return the tables of the helper ``add_tables``, or None if it does not apply."""
    operands = ((residual.result_zero, residual.result), (residual.other_zero, residual.other))
    output = residual.output
    multipliers, shifts = output.multipliers.astype(np.int64), -output.shifts.astype(np.int64)
    last = _table(multipliers, shifts, residual.output_zero, 2**29)
    if last is None or any(not 0 <= -int(rescale.shifts[0]) <= 30 for _, rescale in operands):
        return None
    tables = [_scale_values(zero, rescale) for zero, rescale in operands]
    folded = _fold(last)
    if folded is None or sum(max(map(abs, table)) for table in tables) >= _FOLDED_LIMIT:
        return None
    return np.array([*tables[0], *tables[1], *folded[0], residual.low, residual.high], np.int32)


def _sum_tables(tables: Int32, residual: Residual) -> Int32:
    scale = [residual.output.multipliers[0], residual.output.shifts[0], residual.output_zero]
    return np.array([*tables[:512], *scale, residual.low, residual.high], np.int32)


def _scale_values(zero: int, rescale: Rescale) -> list[int]:
    multiplier, shift = int(rescale.multipliers[0]), int(rescale.shifts[0])
    return [fixed_point.requantize((value - zero) << 20, multiplier, shift) for value in range(-128, 128)]


def geometry(record: Convolution) -> Int32:
    """Return the window geometry read by the helpers ``copy_window`` and ``window_columns``."""
    window = [*record.weights.shape[1:3], *record.strides, *record.dilation, *record.padding[:2]]
    return np.array([*record.input_shape, *window, record.output_shape[1], record.input_zero], np.int32)


class Pointers(dict[str, Any]):
    """Base pointers of a step's inputs and scratch buffers, by name."""

    def __init__(self, read: Mapping[str, Any], writes: Mapping[str, Any]) -> None:
        super().__init__({item: buffer.access_ptr("r") for item, buffer in read.items()})
        self.update({item: buffer.access_ptr("rw") for item, buffer in writes.items()})
        self._buffers = {**read, **writes}

    def to(self, name: str, element: Any) -> Any:
        return tirx.address_of(self._buffers[name][element])


_Body = Callable[[Any, Any, Pointers], None]  # Step number, output, other pointers.


def operator_of_steps(
    record: Convolution,
    near: int | None,
    constants: Mapping[str, npt.NDArray[Any]],
    own: Mapping[str, tuple[int, str]],
    steps: int,
    body: _Body,
) -> Operator:
    """Make an operator that calls C helpers, one step after the other; ``near``: see :data:`functions.OVERLAP`."""
    size = int(np.prod(record.output_shape))
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        # The strips of a layer share a function: their rows of padding count.
        rows = record.input_shape[0] + (record.padding[0] + record.padding[2] if record.whole_rows else 0)
        read_bytes = rows * int(np.prod(record.input_shape[1:]))
        read = {"data": script.arg("data", script.Buffer((read_bytes,), "int8"))}
        if record.residual is not None:
            read["other"] = script.arg("other", script.Buffer((size,), "int8"))
        for constant, array in constants.items():
            read[constant] = script.arg(constant, script.Buffer(array.shape, str(array.dtype)))
        output = script.arg("output", script.Buffer((size,), "int8"))
        with script.sblock("root"):
            buffers = {item: _buffer(item, *what) for item, what in own.items()}
            with script.serial(0, steps) as loop, script.sblock("step"):
                number = script.axis.spatial(steps, loop)
                script.reads(*map(_whole, read.values()))
                script.writes(*map(_whole, (output, *buffers.values())))
                body(number, output, Pointers(read, buffers))
    name = "depthwise_conv2d_int8" if record.depthwise else "conv2d_int8"
    overlap = (near,) if record.residual is None else (near, 0)
    function = functions.describe(builder.get(), name, overlap, record.macs)
    return Operator(function, tuple(constants.values()))


def operator_of_tiles(
    record: Convolution,
    near: int | None,
    constants: dict[str, npt.NDArray[Any]],
    own: dict[str, tuple[int, str]],
    together: int,
    body: Callable[[Any, Any, Any, Pointers], None],
    add: str = "add_tables",
) -> Operator | None:
    """As :func:`operator_of_steps`, for tiles of a convolution's pixels; ``add`` adds the residual, if there is one.

    Args:
        body: emits a tile from its number, a function to address its result, count of pixels and pointers.
    """
    height, width, channels = record.output_shape
    pixels = height * width
    if record.residual is not None:
        tables = residual_tables(record.residual)
        if tables is None:
            return None
        constants["tables"] = tables if add == "add_tables" else _sum_tables(tables, record.residual)
        own["result"] = (together * channels, "int8")

    def tile(number: Any, output: Any, at: Pointers) -> None:
        first = number * together
        count = tirx.min(pixels - first, tirx.IntImm("int32", together)) if pixels % together else together
        begin = first * channels
        if record.residual is None:
            body(number, lambda place: tirx.address_of(output[begin + place]), count, at)
            return
        body(number, functools.partial(at.to, "result"), count, at)
        to = tirx.address_of(output[begin])
        call_helper(add, to, at["result"], at.to("other", begin), at["tables"], count * channels)

    return operator_of_steps(record, near, constants, own, -(-pixels // together), tile)


def with_forms(forms: Sequence[Operator]) -> Operator:
    """Return the first of several equivalent operators; each next one is slower and needs less memory."""
    operator = forms[-1]
    for form in reversed(forms[:-1]):
        operator = replace(form, function=form.function.with_attr(functions.THRIFTY, operator.function))
    return operator


def _buffer(name: str, elements: int, dtype: str) -> Any:
    buffer = script.sblock_alloc_buffer((elements,), dtype)
    IRBuilder.name(name, buffer)
    return buffer


def _whole(buffer: Any) -> Any:
    return buffer[0 : int(buffer.shape[0])]


def call_helper(helper: str, *arguments: Any) -> None:
    script.evaluate(script.call_extern("int32", helper, *arguments))
