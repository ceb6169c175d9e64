# SPDX-License-Identifier: Apache-2.0
"""LSTMs: stateful operators take their states and return the next ones with the result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as building

from utvm.compiler.kernels import Kernel, functions, hybrid, lookup
from utvm.compiler.kernels.arithmetic import clamp_value, narrow_multiplier, number, rescale_value, rescale_wide
from utvm.compiler.kernels.use import Use, check_states, scale_of, zero_of
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.errors import CompileError

Array = npt.NDArray[Any]

# Operand numbers in the order of use: forget, input, cell and output gate.
_WEIGHTS, _RECURRENT, _BIASES = (2, 1, 3, 4), (6, 5, 7, 8), (13, 12, 14, 15)
_CELL = 2  # The gate with the TANH curve.
_HIDDEN_STATE, _CELL_STATE = 18, 19
_LEFT_OUT = (9, 10, 11, 16, 17, 20, 21, 22, 23)  # Unsupported: peepholes, projection, normalisation.
_GATE_SCALE = np.float32(2.0**-12)  # Scale of the curves' inputs and outputs.
_CURVE_SCALE = np.float32(2.0**-15)
_INT16 = (-32768, 32767)
_KINDS = (  # Types of input, cell state and weights.
    ("float32", "float32", "float32"),
    ("float32", "float32", "int8"),
    ("int8", "int16", "int8"),
    ("int16", "int16", "int8"),
)


@dataclass(frozen=True)
class _Sizes:
    """Dimensions of an LSTM, and the indices of a step."""

    batches: int
    steps: int
    depth: int
    units: int
    time_major: bool

    def place(self, batch: Any, step: Any) -> Any:
        return step * self.batches + batch if self.time_major else batch * self.steps + step


def _lstm(use: Use, operands: list[Any]) -> Any:
    check_states(use, (_HIDDEN_STATE, _CELL_STATE))
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
    if kinds not in _KINDS:
        raise CompileError(f"{data.dtype} by {kinds[2]} with a state of {kinds[1]} is not supported")
    batches, steps = data.shape[1::-1] if options.TimeMajor() else data.shape[:2]
    sizes = _Sizes(batches, steps, data.shape[2], use.input(_RECURRENT[0]).shape[1], options.TimeMajor())
    clip = float(options.CellClip())
    inputs = [operands[0], operands[_HIDDEN_STATE], operands[_CELL_STATE]]
    cell: _FloatCell | _IntegerCell = _FloatCell(clip)
    if kinds == ("float32", "float32", "int8"):
        cell = quantised = _HybridCell(use, operands[0], sizes, clip)
        inputs[0] = quantised.numbers
    elif data.dtype != "float32":
        cell = _IntegerCell(use, clip)
    arrays = [
        *(np.stack([use.constant(place) for place in places]) for places in (_WEIGHTS, _RECURRENT)),
        np.stack([use.constant(place).astype(cell.bias_type) for place in _BIASES]),
        *cell.tables,
    ]
    units, states = sizes.units, sizes.batches * sizes.units
    shapes = {array.shape for array in arrays[:3]}
    sides = {use.input(_HIDDEN_STATE).size, use.input(_CELL_STATE).size, use.result.size // max(sizes.steps, 1)}
    if shapes != {(4, units, sizes.depth), (4, units, units), (4, units)} or sides != {states}:
        raise CompileError(f"its operands' shapes are not those of {units} units: {sorted(shapes)}")
    scratch = {
        "gates": ((4, units), cell.gate_type),
        "sums": ((2,), cell.sum_type),
        "curve": ((2,), "int32"),
        **cell.scratch(units),
    }

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        _run(cell, sizes, read, writes, own)

    macs = states * sizes.steps * 4 * (sizes.depth + units)
    name = f"lstm_{cell.name}"
    return functions.add_loops(use.builder, name, [*inputs, *arrays], use.outputs, scratch, body, macs)


def _run(
    cell: "_FloatCell | _IntegerCell",
    sizes: _Sizes,
    read: Sequence[Any],
    writes: Sequence[Any],
    own: Mapping[str, Any],
) -> None:
    data, old_hidden, old_cell, weights, recurrent, bias, *tables = read
    output, hidden, state = writes
    sums, units = own["sums"], sizes.units
    with building.serial(0, sizes.batches * units) as at:
        hidden[at] = old_hidden[at]
        state[at] = old_cell[at]
    with building.serial(0, sizes.batches) as batch, building.serial(0, sizes.steps) as step:
        place = sizes.place(batch, step)
        retained, first = cell.begin(hidden, batch * units, place, tables, own)
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
                    sums[1] = sums[1] + cell.product(retained[first + inner], factor, cell.hidden_zero)
                total = cell.gate(gate, sums[0], bias[row], sums[1])
                own["gates"][row] = cell.curve(total, gate != _CELL, tables, own["curve"])
        with building.serial(0, units) as unit:
            gates = [own["gates"][number(gate * units) + unit] for gate in range(4)]
            at = batch * units + unit
            state[at] = cell.next_state(state[at], gates)
            hidden[at] = cell.result(state[at], gates[3], tables, own["curve"])
        with building.serial(0, units) as unit:
            output[place * units + unit] = hidden[batch * units + unit]


class _Cell:
    name = sum_type = bias_type = gate_type = "float32"
    data_zero: Any = 0
    hidden_zero: Any = 0
    tables: tuple[Any, ...] = ()

    def scratch(self, units: int) -> dict[str, tuple[tuple[int, ...], str]]:
        return {}

    def begin(self, hidden: Any, first: Any, place: Any, tables: Sequence[Any], own: Mapping[str, Any]) -> Any:
        return hidden, first


class _FloatCell(_Cell):
    def __init__(self, clip: float) -> None:
        self._clip = clip

    def product(self, value: Any, factor: Any, zero: int) -> Any:
        return value * factor

    def gate(self, gate: int, total: Any, bias: Any, recurrent: Any) -> Any:
        return total + bias + recurrent

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


class _HybridCell(_FloatCell):
    """Float arithmetic with 8-bit weights: the activations are quantised in each step."""

    name, sum_type = "hybrid", "int32"

    def __init__(self, use: Use, data: Any, sizes: _Sizes, clip: float) -> None:
        super().__init__(clip)
        self._symmetric = not use.options(tflite.UnidirectionalSequenceLSTMOptions).AsymmetricQuantizeInputs()
        self._scales = [[hybrid.one_scale(use, place) for place in places] for places in (_WEIGHTS, _RECURRENT)]
        rows = sizes.batches * sizes.steps
        flat = use.builder.emit(relax.op.reshape(data, (rows, sizes.depth)))
        rows_quantised = hybrid.quantise_rows(use, flat, rows, sizes.depth, symmetric=self._symmetric)
        self.numbers = rows_quantised.numbers
        self.tables = (rows_quantised.scales,)
        if rows_quantised.zeros is not None:
            self.tables += (rows_quantised.zeros,)
        self._steps: list[Any] = []

    def scratch(self, units: int) -> dict[str, tuple[tuple[int, ...], str]]:
        return {
            "kept": ((units,), "int8"),
            "ends": ((2,), "float32"),
            "wide": ((1,), "float64"),
            "scale": ((2,), "float32"),
            "zero": ((1,), "int32"),
        }

    def begin(self, hidden: Any, first: Any, place: Any, tables: Sequence[Any], own: Mapping[str, Any]) -> Any:
        ends, retained, scale = own["ends"], own["kept"], own["scale"]
        units = int(retained.shape[0])
        ends[0] = hidden[first]
        ends[1] = hidden[first]
        with building.serial(0, units) as unit:
            ends[0] = tirx.min(ends[0], hidden[first + unit])
            ends[1] = tirx.max(ends[1], hidden[first + unit])
        if self._symmetric:
            ends[1] = hybrid.symmetric_size(ends[0], ends[1])
            scale[0] = hybrid.symmetric_scale(ends[1])
            scale[1] = hybrid.symmetric_inverse(ends[1])
            own["zero"][0] = number(0)
        else:
            own["wide"][0] = hybrid.asymmetric_step(ends[0], ends[1])
            own["zero"][0] = hybrid.asymmetric_zero(ends[0], ends[1], own["wide"][0])
            scale[0] = own["wide"][0].astype("float32")
            scale[1] = tirx.FloatImm("float32", 1.0) / scale[0]
        with building.serial(0, units) as unit:
            real = own["zero"][0].astype("float32") + hidden[first + unit] * scale[1]
            retained[unit] = hybrid.integer(real, -127 if self._symmetric else -128)
        self._steps = [tables[0][place], scale[0]]
        if not self._symmetric:
            self.data_zero, self.hidden_zero = tables[1][place], own["zero"][0]
        return retained, number(0)

    def product(self, value: Any, factor: Any, zero: Any) -> Any:
        return (value.astype("int32") - zero) * factor.astype("int32")

    def gate(self, gate: int, total: Any, bias: Any, recurrent: Any) -> Any:
        for item, step, scales in zip((total, recurrent), self._steps, self._scales, strict=True):
            bias = bias + item.astype("float32") * (step * tirx.FloatImm("float32", scales[gate]))
        return bias


class _IntegerCell(_Cell):
    """Integer arithmetic; gates and cell state have 16 bits."""

    gate_type = "int16"

    def __init__(self, use: Use, clip: float) -> None:
        data, state, hidden = use.input(0), use.input(_CELL_STATE), use.input(_HIDDEN_STATE)
        self._wide = data.dtype == "int16"
        self.name = data.dtype
        self.sum_type = self.bias_type = "int64" if self._wide else "int32"
        self.data_zero, self.hidden_zero = zero_of(data), zero_of(hidden)
        self.tables = (lookup.sigmoid_table(),)
        self._reals = [
            [self._real(item, use.input(weights)) for item, weights in ((data, own), (hidden, recurrent))]
            for own, recurrent in zip(_WEIGHTS, _RECURRENT, strict=True)
        ]
        scale, curve = np.float64(scale_of(state)), np.float64(_CURVE_SCALE)
        self._forget, self._input = float(curve * scale / scale), float(curve * curve / scale)
        self._hidden, self._kind = float(curve * curve / np.float64(scale_of(hidden))), hidden.dtype
        mantissa, exponent = math.frexp(float(scale))
        if mantissa != 0.5:
            raise CompileError(f"the scale of its cell state, {float(scale)}, is no power of two")
        # As the kernels do: 15 fractional bits, three of them turned into integer bits.
        left = 15 + (exponent - 1) - 3
        self._factor, self._places = (3 << left, 0) if left >= 0 else (3, -left)
        self._clip = int(min(max(clip / float(scale), -32768.0), 32767.0)) if clip > 0 else 0

    @staticmethod
    def _real(data: TfliteTensor, weights: TfliteTensor) -> float:
        if zero_of(weights) != 0:
            raise CompileError(f"the weights {weights.name!r} have a zero point")
        # The product of the scales is in single precision.
        return float(np.float64(scale_of(data) * scale_of(weights)) / np.float64(_GATE_SCALE))

    def product(self, value: Any, factor: Any, zero: int) -> Any:
        whole = value.astype("int32") - number(zero)
        return (whole * factor.astype("int32")).astype(self.sum_type)

    def gate(self, gate: int, total: Any, bias: Any, recurrent: Any) -> Any:
        parts = [
            clamp_value(self._rescale(item, real), *_INT16, "int32")
            for item, real in zip((total + bias, recurrent), self._reals[gate], strict=True)
        ]
        return clamp_value(parts[0] + parts[1], *_INT16, "int32")

    def _rescale(self, total: Any, real: float) -> Any:
        if not self._wide:
            return rescale_value(total, real)
        multiplier, shift = narrow_multiplier(real)
        return rescale_wide(total, number(multiplier, "int64"), number(shift, "int64"))

    def curve(self, value: Any, logistic: bool, tables: Sequence[Any], own: Any) -> Any:
        return self._curve(value * number(3), logistic, tables, own)

    def _curve(self, scaled: Any, logistic: bool, tables: Sequence[Any], own: Any) -> Any:
        own[0] = scaled
        own[1] = lookup.interpolate(tirx.max(own[0], number(0) - own[0]), tables[0], logistic)
        return lookup.mirror(own[0], own[1], logistic)

    def next_state(self, state: Any, gates: Sequence[Any]) -> Any:
        forget, entered, candidate = (gate.astype("int32") for gate in gates[:3])
        retained = clamp_value(rescale_value(forget * state.astype("int32"), self._forget), *_INT16, "int32")
        new = clamp_value(rescale_value(entered * candidate, self._input), *_INT16, "int32")
        bounds = (-self._clip, self._clip) if self._clip else _INT16
        return clamp_value(clamp_value(retained + new, *_INT16, "int32"), *bounds, "int16")

    def result(self, state: Any, gate: Any, tables: Sequence[Any], own: Any) -> Any:
        rounding = number(1 << (self._places - 1) if self._places else 0)
        scaled = tirx.shift_right(state.astype("int32") * number(self._factor) + rounding, number(self._places))
        curved = self._curve(scaled, False, tables, own)
        value = rescale_value(curved.astype("int32") * gate.astype("int32"), self._hidden) + number(
            self.hidden_zero
        )
        info = np.iinfo(self._kind)
        return clamp_value(value, int(info.min), int(info.max), self._kind)


KERNEL = Kernel(tflite={"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm})
