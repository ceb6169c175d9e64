# SPDX-License-Identifier: Apache-2.0
"""Operators that keep something between runs: each takes its states and gives the next ones, beside its result."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import tirx
from tvm.script.ir_builder import tirx as building

from utvm.compiler.integer.exact import (
    clamped,
    looped,
    narrow_multiplier,
    number,
    rescaled,
    rescaled_wide,
    scale_of,
    zero_of,
)
from utvm.compiler.integer.tflite.curves import between, mirrored, sigmoid_table
from utvm.compiler.integer.tflite.layers import bounded_float
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.compiler.tflite_kernel import Kernel, Use
from utvm.errors import CompileError

Array = npt.NDArray[Any]

# Of the operands, in the order in which a step uses them: forget, input, cell and output gate.
_WEIGHTS, _RECURRENT, _BIASES = (2, 1, 3, 4), (6, 5, 7, 8), (13, 12, 14, 15)
_CELL = 2  # Which gate's curve is TANH.
_HIDDEN_STATE, _CELL_STATE = 18, 19
_LEFT_OUT = (9, 10, 11, 16, 17, 20, 21, 22, 23)  # Peepholes, projection, normalisation.
_GATE_SCALE = np.float32(2.0**-12)  # Of what the curves are given, and of what they give.
_CURVE_SCALE = np.float32(2.0**-15)
_INT16 = (-32768, 32767)


@dataclass(frozen=True)
class _Sizes:
    """How large an LSTM is, and where the numbers of a step are."""

    batches: int
    steps: int
    depth: int
    units: int
    time_major: bool

    def place(self, batch: Any, step: Any) -> Any:
        """Return which of all steps one of a batch is."""
        return step * self.batches + batch if self.time_major else batch * self.steps + step


def _lstm(use: Use, operands: list[Any]) -> Any:
    """Add a UNIDIRECTIONAL_SEQUENCE_LSTM in floats, in 8 bits or in 16.

    Raises:
        CompileError: it has what the reference kernel does not do, or the file is damaged.
    """
    _check_states(use, (_HIDDEN_STATE, _CELL_STATE))
    options = use.options(tflite.UnidirectionalSequenceLSTMOptions)
    used = [place for place in _LEFT_OUT if use.has(place)]
    if used:
        raise CompileError(
            f"its operand {used[0]}, of peepholes, a projection or a normalisation, is not supported"
        )
    if options.FusedActivationFunction() != tflite.ActivationFunctionType.TANH:
        raise CompileError(f"its activation, number {options.FusedActivationFunction()}, is not supported")
    data = use.input(0)
    kinds = (data.dtype, use.dtype(_CELL_STATE), *{use.dtype(place) for place in (*_WEIGHTS, *_RECURRENT)})
    if kinds not in (("float32",) * 3, ("int8", "int16", "int8"), ("int16", "int16", "int8")):
        raise CompileError(f"{data.dtype} by {kinds[2]} with a state of {kinds[1]} is not supported")
    batches, steps = data.shape[1::-1] if options.TimeMajor() else data.shape[:2]
    sizes = _Sizes(batches, steps, data.shape[2], use.input(_RECURRENT[0]).shape[1], options.TimeMajor())
    clip = float(options.CellClip())
    cell = _FloatCell(clip) if data.dtype == "float32" else _IntegerCell(use, clip)
    arrays = [
        *(np.stack([use.constant(place) for place in places]) for places in (_WEIGHTS, _RECURRENT)),
        np.stack([use.constant(place).astype(cell.sum_type) for place in _BIASES]),
        *cell.tables,
    ]
    units, states = sizes.units, sizes.batches * sizes.units
    shapes = {each.shape for each in arrays[:3]}
    sides = {use.input(_HIDDEN_STATE).size, use.input(_CELL_STATE).size, use.result.size // max(sizes.steps, 1)}
    if shapes != {(4, units, sizes.depth), (4, units, units), (4, units)} or sides != {states}:
        raise CompileError(f"its operands' shapes are not those of {units} units: {sorted(shapes)}")
    given = [operands[0], operands[_HIDDEN_STATE], operands[_CELL_STATE], *arrays]
    scratch = {
        "gates": ((4, units), cell.gate_type),
        "sums": ((2,), cell.sum_type),
        "curve": ((2,), "int32"),
    }

    def body(read: Sequence[Any], written: Sequence[Any], own: Mapping[str, Any]) -> None:
        _run(cell, sizes, read, written, own)

    macs = states * sizes.steps * 4 * (sizes.depth + units)
    return looped(use.builder, f"lstm_{data.dtype}", given, use.outputs, scratch, body, macs)


def _run(
    cell: "_FloatCell | _IntegerCell",
    sizes: _Sizes,
    read: Sequence[Any],
    written: Sequence[Any],
    own: Mapping[str, Any],
) -> None:
    """Write the loops of an LSTM: all gates of a step, then the states, then the step's result."""
    data, old_hidden, old_cell, weights, recurrent, bias, *tables = read
    output, hidden, state = written
    sums, units = own["sums"], sizes.units
    with building.serial(0, sizes.batches * units) as at:
        hidden[at] = old_hidden[at]
        state[at] = old_cell[at]
    with building.serial(0, sizes.batches) as batch, building.serial(0, sizes.steps) as step:
        place = sizes.place(batch, step)
        for gate in range(4):
            with building.serial(0, units) as unit:
                row = number(gate * units) + unit
                sums[0] = tirx.const(0, cell.sum_type)
                sums[1] = tirx.const(0, cell.sum_type)
                with building.serial(0, sizes.depth) as inner:
                    factor = weights[row * sizes.depth + inner]
                    sums[0] = sums[0] + cell.product(data[place * sizes.depth + inner], factor, cell.data_zero)
                with building.serial(0, units) as inner:
                    factor = recurrent[row * units + inner]
                    sums[1] = sums[1] + cell.product(hidden[batch * units + inner], factor, cell.hidden_zero)
                total = cell.gate(gate, sums[0] + bias[row], sums[1])
                own["gates"][row] = cell.curve(total, gate != _CELL, tables, own["curve"])
        with building.serial(0, units) as unit:
            gates = [own["gates"][number(gate * units) + unit] for gate in range(4)]
            at = batch * units + unit
            state[at] = cell.next_state(state[at], gates)
            hidden[at] = cell.result(state[at], gates[3], tables, own["curve"])
        with building.serial(0, units) as unit:
            output[place * units + unit] = hidden[batch * units + unit]


class _FloatCell:
    """The arithmetic of an LSTM in floats."""

    sum_type = gate_type = "float32"
    data_zero = hidden_zero = 0
    tables: tuple[Array, ...] = ()

    def __init__(self, clip: float) -> None:
        self._clip = clip

    def product(self, value: Any, factor: Any, zero: int) -> Any:
        return value * factor

    def gate(self, gate: int, total: Any, recurrent: Any) -> Any:
        return total + recurrent

    def curve(self, value: Any, logistic: bool, tables: Sequence[Any], own: Any) -> Any:
        return tirx.sigmoid(value) if logistic else tirx.tanh(value)

    def next_state(self, state: Any, gates: Sequence[Any]) -> Any:
        value = gates[0] * state + gates[1] * gates[_CELL]
        if self._clip > 0:
            limit = tirx.FloatImm("float32", self._clip)
            value = tirx.max(tirx.min(value, limit), tirx.FloatImm("float32", -self._clip))
        return value

    def result(self, state: Any, gate: Any, tables: Sequence[Any], own: Any) -> Any:
        return self.curve(state, False, tables, own) * gate


class _IntegerCell:
    """The arithmetic of an LSTM in integers: gates and cell state have 16 bits."""

    gate_type = "int16"

    def __init__(self, use: Use, clip: float) -> None:
        """Read what the file says of an LSTM of integers.

        Raises:
            CompileError: the reference kernel does not do it; a converter writes it otherwise.
        """
        data, state, hidden = use.input(0), use.input(_CELL_STATE), use.input(_HIDDEN_STATE)
        self._wide = data.dtype == "int16"
        self.sum_type = "int64" if self._wide else "int32"
        self.data_zero, self.hidden_zero = zero_of(data), zero_of(hidden)
        self.tables = (sigmoid_table(),)
        self._reals = [
            [self._real(each, use.input(weights)) for each, weights in ((data, own), (hidden, recurrent))]
            for own, recurrent in zip(_WEIGHTS, _RECURRENT, strict=True)
        ]
        scale, curve = np.float64(scale_of(state)), np.float64(_CURVE_SCALE)
        self._forget, self._input = float(curve * scale / scale), float(curve * curve / scale)
        self._hidden, self._kind = float(curve * curve / np.float64(scale_of(hidden))), hidden.dtype
        mantissa, exponent = math.frexp(float(scale))
        if mantissa != 0.5:
            raise CompileError(f"the scale of its cell state, {float(scale)}, is no power of two")
        # As the kernels do: 15 fractional bits, of which three become whole ones.
        left = 15 + (exponent - 1) - 3
        self._factor, self._places = (3 << left, 0) if left >= 0 else (3, -left)
        self._clip = int(min(max(clip / float(scale), -32768.0), 32767.0)) if clip > 0 else 0

    @staticmethod
    def _real(data: TfliteTensor, weights: TfliteTensor) -> float:
        """Return the factor of a product.

        Raises:
            CompileError: the reference kernel takes symmetric weights only; a converter writes them so.
        """
        if zero_of(weights) != 0:
            raise CompileError(f"the weights {weights.name!r} have a zero point")
        # The product of the scales is one of single precision.
        return float(np.float64(scale_of(data) * scale_of(weights)) / np.float64(_GATE_SCALE))

    def product(self, value: Any, factor: Any, zero: int) -> Any:
        whole = value.astype("int32") - number(zero)
        return (whole * factor.astype("int32")).astype(self.sum_type)

    def gate(self, gate: int, total: Any, recurrent: Any) -> Any:
        parts = [
            clamped(self._rescaled(each, real), _INT16, "int32")
            for each, real in zip((total, recurrent), self._reals[gate], strict=True)
        ]
        return clamped(parts[0] + parts[1], _INT16, "int32")

    def _rescaled(self, total: Any, real: float) -> Any:
        if not self._wide:
            return rescaled(total, real)
        multiplier, shift = narrow_multiplier(real)
        return rescaled_wide(total, number(multiplier, "int64"), number(shift, "int64"))

    def curve(self, value: Any, logistic: bool, tables: Sequence[Any], own: Any) -> Any:
        """Return the curve of an int32 expression with 12 fractional bits."""
        return self._curve(value * number(3), logistic, tables, own)

    def _curve(self, scaled: Any, logistic: bool, tables: Sequence[Any], own: Any) -> Any:
        own[0] = scaled
        own[1] = between(tirx.max(own[0], number(0) - own[0]), tables[0], logistic)
        return mirrored(own[0], own[1], logistic)

    def next_state(self, state: Any, gates: Sequence[Any]) -> Any:
        forget, entered, candidate = (each.astype("int32") for each in gates[:3])
        kept = clamped(rescaled(forget * state.astype("int32"), self._forget), _INT16, "int32")
        new = clamped(rescaled(entered * candidate, self._input), _INT16, "int32")
        bounds = (-self._clip, self._clip) if self._clip else _INT16
        return clamped(clamped(kept + new, _INT16, "int32"), bounds, "int16")

    def result(self, state: Any, gate: Any, tables: Sequence[Any], own: Any) -> Any:
        rounding = number(1 << (self._places - 1) if self._places else 0)
        scaled = tirx.shift_right(state.astype("int32") * number(self._factor) + rounding, number(self._places))
        curved = self._curve(scaled, False, tables, own)
        value = rescaled(curved.astype("int32") * gate.astype("int32"), self._hidden) + number(self.hidden_zero)
        info = np.iinfo(self._kind)
        return clamped(value, (int(info.min), int(info.max)), self._kind)


def _svdf(use: Use, operands: list[Any]) -> Any:
    """Add an SVDF in floats or in 8 bits: each filter remembers its last results, which a second one weighs.

    Raises:
        CompileError: it has what the reference kernel does not do, or the file is damaged.
    """
    _check_states(use, (4,))
    data, features, times = use.input(0), use.input(1), use.input(2)
    state, result = use.input(4), use.result
    real = data.dtype == "float32"
    kinds = (data.dtype, features.dtype, times.dtype, state.dtype, result.dtype)
    if kinds != ("float32",) * 5 and kinds not in (
        ("int8", "int8", each, each, "int8") for each in ("int8", "int16")
    ):
        raise CompileError(f"elements of the types {', '.join(kinds)} are not supported")
    options = use.options(tflite.SVDFOptions)
    (filters, depth), memory, rank = features.shape, times.shape[1], options.Rank()
    if rank < 1 or filters % rank:
        raise CompileError(f"its rank is {rank}, of {filters} filters")
    batches, units = data.shape[0], filters // rank
    sizes = (data.size, times.shape[0], state.size, result.size)
    if sizes != (batches * depth, filters, batches * filters * memory, batches * units):
        raise CompileError(f"its operands' shapes are not those of {filters} filters")
    sums = "float32" if real else "int32"
    bias = use.constant(3) if use.has(3) else np.zeros(units, sums)
    if bias.shape != (units,):
        raise CompileError(f"its bias has the shape {bias.shape}, for {units} units")
    activation = options.FusedActivationFunction()
    ending = functools.partial(bounded_float, activation=activation) if real else _integer_ending(use)

    def body(read: Sequence[Any], written: Sequence[Any], own: Mapping[str, Any]) -> None:
        given, feature, time, before, offsets = read
        output, after = written
        total, one = own["sums"], 1
        with building.serial(0, batches) as batch:
            with building.serial(0, filters) as each:
                first = (batch * filters + each) * memory
                with building.serial(0, memory - 1) as place:
                    after[first + place] = before[first + place + one]
                total[0] = tirx.const(0, sums)
                with building.serial(0, depth) as inner:
                    value = given[batch * depth + inner].astype(sums) - tirx.const(zero_of(data), sums)
                    total[0] = total[0] + value * feature[each * depth + inner].astype(sums)
                after[first + (memory - one)] = total[0] if real else _newest(use, total[0])
            with building.serial(0, units) as unit:
                total[1] = offsets[unit]
                with building.serial(0, rank) as part:
                    row = unit * rank + part
                    total[0] = tirx.const(0, sums)
                    with building.serial(0, memory) as place:
                        value = after[(batch * filters + row) * memory + place].astype(sums)
                        value = value - tirx.const(zero_of(state), sums)
                        total[0] = total[0] + value * time[row * memory + place].astype(sums)
                    total[1] = total[1] + total[0]
                output[batch * units + unit] = ending(total[1])

    given = [operands[0], use.constant(1), use.constant(2), operands[4], bias]
    macs = batches * filters * (depth + memory)
    return looped(use.builder, f"svdf_{data.dtype}", given, use.outputs, {"sums": ((2,), sums)}, body, macs)


def _check_states(use: Use, places: tuple[int, ...]) -> None:
    """Refuse states that are no variables.

    Raises:
        CompileError: what it keeps between runs is no variable in the file.
    """
    if len(use.outputs) != 1 + len(places):
        raise CompileError(f"its operands {', '.join(map(str, places))} must be variable tensors")


def _newest(use: Use, total: Any) -> Any:
    """Return what a filter remembers of its sum."""
    scales = [scale_of(use.input(place)) for place in (0, 1, 4)]
    state = use.input(4)
    info = np.iinfo(state.dtype)
    value = rescaled(total, float(np.float64(scales[0] * scales[1] / scales[2]))) + number(zero_of(state))
    return clamped(value, (int(info.min), int(info.max)), state.dtype)


def _integer_ending(use: Use) -> Any:
    real = float(np.float64(scale_of(use.input(4)) * scale_of(use.input(2)) / scale_of(use.result)))
    # The kernels know no activation here.
    return lambda total: clamped(rescaled(total, real) + number(zero_of(use.result)), (-128, 127), "int8")


KERNELS: dict[str, Kernel] = {"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm, "SVDF": _svdf}
