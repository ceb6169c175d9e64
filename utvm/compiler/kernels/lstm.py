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

from utvm.compiler.kernels import Kernel, fixed_point, functions, hybrid, lookup
from utvm.compiler.kernels.arithmetic import clamp_value, narrow_multiplier, number, rescale_value, rescale_wide
from utvm.compiler.kernels.cores import packed
from utvm.compiler.kernels.cores.constants import call_helper
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
        raise CompileError(f"its operand {used[0]}, of peepholes, a projection or a normalisation, is not supported")
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
    weights, recurrent = (np.stack([use.constant(place) for place in places]) for places in (_WEIGHTS, _RECURRENT))
    bias = np.stack([use.constant(place).astype(cell.bias_type) for place in _BIASES])
    units, states = sizes.units, sizes.batches * sizes.units
    shapes = {array.shape for array in (weights, recurrent, bias)}
    sides = {use.input(_HIDDEN_STATE).size, use.input(_CELL_STATE).size, use.result.size // max(sizes.steps, 1)}
    if shapes != {(4, units, sizes.depth), (4, units, units), (4, units)} or sides != {states}:
        raise CompileError(f"its operands' shapes are not those of {units} units: {sorted(shapes)}")
    macs = states * sizes.steps * 4 * (sizes.depth + units)
    numbers = cell.numbers if isinstance(cell, _IntegerCell) else None
    if numbers is not None:
        biases = [bias, np.zeros_like(bias)]
        for side, (matrix, zero) in enumerate(((weights, cell.data_zero), (recurrent, cell.hidden_zero))):
            biases[side] = biases[side] - np.int32(zero) * matrix.sum(2, dtype="int32")
        constants = [numbers, *cell.tables]
        return _add_steps(use, sizes, inputs, (weights, recurrent), biases, constants, macs)
    arrays = [weights, recurrent, bias, *cell.tables]
    if cell.in_fours:
        totals = [matrix.sum(2, dtype="int32") for matrix in (weights, recurrent)]
        arrays = [_by_unit(weights), _by_unit(recurrent), bias, *totals, *cell.tables]
    scratch = {
        "gates": ((4, units), cell.gate_type),
        "sums": ((8,), cell.sum_type),  # Of each gate's products with the inputs, then with the hidden state.
        **cell.scratch(units),
    }

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        _run(cell, sizes, read, writes, own)

    operator = f"lstm_{cell.name}"
    return functions.add_loops(use.builder, operator, [*inputs, *arrays], use.outputs, scratch, body, macs)


def _add_steps(
    use: Use,
    sizes: _Sizes,
    inputs: Sequence[Any],
    matrices: Sequence[Array],
    biases: Sequence[Array],
    constants: Sequence[Array],
    macs: int,
) -> Any:
    """Add an int8 LSTM of which a helper computes a step."""
    units, extensions = sizes.units, use.target.extensions
    rows, starts = [_by_unit(matrix) for matrix in matrices], np.stack(biases).transpose(0, 2, 1)
    form, expanded, arrays = 0, 0, [*rows, np.ascontiguousarray(starts)]
    padded = sum(matrix.shape[2] for matrix in rows)
    if "dsp" in extensions and "mve" not in extensions and all(map(_fits_pairs, matrices, biases)):
        form, expanded, arrays = 1, padded // 2, list(map(_in_pairs, matrices, biases))
    elif "dsp" not in extensions and all(map(packed.fits_words, rows)):
        words = [packed.words_of(matrix.reshape(4 * units, -1).astype(np.int32) ^ 128) for matrix in rows]
        form, expanded, arrays = 2, 2 * padded, [*words, arrays[2]]
    scratch = {"sums": ((64 + expanded,), "int32"), "gates": ((32,), "int16")}
    left = int(constants[0][2:24:3].min() < 1)

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        data, old_hidden, old_cell, *arrays = read
        output, hidden, state = writes
        with building.serial(0, sizes.batches * units) as at:
            hidden[at] = old_hidden[at]
            state[at] = old_cell[at]
        with building.serial(0, sizes.batches) as batch, building.serial(0, sizes.steps) as step:
            place, first = sizes.place(batch, step), batch * units
            changed = (output[place * units], hidden[first], state[first], data[place * sizes.depth])
            pointers = [tirx.address_of(item) for item in (*changed, *(array[0] for array in arrays))]
            memory = [own[name].data for name in scratch]
            call_helper(f"lstm_step_{form}_{left}", *pointers, *memory, number(sizes.depth), number(units))
            with building.serial(0, units) as unit:
                hidden[first + unit] = output[place * units + unit]

    operands = [*inputs, *arrays, *constants]
    return functions.add_loops(use.builder, "lstm_int8", operands, use.outputs, scratch, body, macs)


def _fits_pairs(weights: Array, biases: Array) -> bool:
    """Whether ``lstm_pairs`` can add up the products: two weights fit 16 bits, 257 times a sum 32."""
    wide = weights.astype(np.int64)
    largest = (128 * np.abs(wide).sum(2) + np.abs(biases.astype(np.int64))).max()
    return bool(257 * largest < 1 << 31 and (wide[::2] + 256 * wide[1::2]).min() >= -(1 << 15))


def _in_pairs(weights: Array, biases: Array) -> Array:
    """Return the stream of ``lstm_pairs`` for weights ``[4][units][depth]`` and biases ``[4][units]``."""
    padded = np.pad(weights.astype(np.int32), ((0, 0), (0, 0), (0, -weights.shape[2] % 4)))
    units, fours = weights.shape[1], padded.shape[2] // 4
    starts = np.stack([biases[::2], biases[::2] + 256 * biases[1::2]], axis=-1)
    # Of four values the first and third, then the second and fourth.
    halves = (padded[::2] + 256 * padded[1::2]).reshape(2, units, fours, 2, 2).transpose(1, 2, 0, 4, 3)
    words = np.ascontiguousarray(halves.astype("<i2")).view("<i4").reshape(units, -1)
    return np.concatenate([starts.transpose(1, 0, 2).reshape(units, 4), words], axis=1).astype(np.int32).ravel()


def _by_unit(weights: Array) -> Array:
    """Put the rows of a unit's gates behind each other, padded to whole words, as ``gate_sums`` reads them."""
    padded = np.pad(weights, ((0, 0), (0, 0), (0, -weights.shape[2] % 4)))
    return np.ascontiguousarray(padded.swapaxes(0, 1))


def _run(
    cell: "_FloatCell | _IntegerCell", sizes: _Sizes, read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]
) -> None:
    data, old_hidden, old_cell, weights, recurrent, bias, *tables = read
    totals = [tables.pop(0), tables.pop(0)] if cell.in_fours else []
    output, hidden, state = writes
    sums, units = own["sums"], sizes.units
    with building.serial(0, sizes.batches * units) as at:
        hidden[at] = old_hidden[at]
        state[at] = old_cell[at]
    with building.serial(0, sizes.batches) as batch, building.serial(0, sizes.steps) as step:
        place = sizes.place(batch, step)
        retained, first = cell.begin(hidden, batch * units, place, tables, own)
        rows = (
            (data, place * sizes.depth, weights, sizes.depth, cell.data_zero),
            (retained, first, recurrent, units, cell.hidden_zero),
        )
        with building.serial(0, units) as unit:
            for side, (values, begin, matrix, count, zero) in enumerate(rows):
                if cell.in_fours:
                    _sum_in_fours(sums, 4 * side, (values, begin), (matrix, unit), count)
                    for gate in range(4) if zero is not None else ():
                        surplus = zero * totals[side][number(gate * units) + unit]
                        sums[4 * side + gate] = sums[4 * side + gate] - surplus
                else:
                    for gate in range(4):
                        at = (number(gate * units) + unit) * count
                        sums[4 * side + gate] = tirx.const(0, cell.sum_type)
                        with building.serial(0, count) as inner:
                            product = cell.product(values[begin + inner], matrix[at + inner], zero)
                            sums[4 * side + gate] = sums[4 * side + gate] + product
            for gate in range(4):
                row = number(gate * units) + unit
                total = cell.gate(gate, sums[gate], bias[row], sums[4 + gate])
                curve = cell.curve(total, gate != _CELL, tables)
                own["gates"][row] = curve.astype(cell.gate_type)
        with building.serial(0, units) as unit:
            gates = [own["gates"][number(gate * units) + unit] for gate in range(4)]
            at = batch * units + unit
            state[at] = cell.next_state(state[at], gates)
            hidden[at] = cell.result(state[at], gates[3], tables)
        with building.serial(0, units) as unit:
            output[place * units + unit] = hidden[batch * units + unit]


def _sum_in_fours(sums: Any, at: int, values: tuple[Any, Any], weights: tuple[Any, Any], count: int) -> None:
    """Add up the products of a unit's four gates, with weights as :func:`_by_unit` lays them out."""
    (buffer, begin), (matrix, unit), stride = values, weights, -(-count // 4) * 4
    rows = tirx.address_of(matrix[unit * number(4 * stride)])
    to, source = tirx.address_of(sums[at]), tirx.address_of(buffer[begin])
    call_helper("gate_sums", to, source, rows, number(stride), number(count))


class _Cell:
    in_fours = False  # Bytes: a helper adds products of four gates at once.
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

    def curve(self, value: Any, logistic: bool, tables: Sequence[Any]) -> Any:
        return tirx.sigmoid(value) if logistic else tirx.tanh(value)

    def next_state(self, state: Any, gates: Sequence[Any]) -> Any:
        value = gates[0] * state + gates[1] * gates[_CELL]
        if self._clip > 0:
            limit = tirx.FloatImm("float32", self._clip)
            value = tirx.max(tirx.min(value, limit), tirx.FloatImm("float32", -self._clip))
        return value

    def result(self, state: Any, gate: Any, tables: Sequence[Any]) -> Any:
        return self.curve(state, False, tables) * gate


class _HybridCell(_FloatCell):
    """Float arithmetic with 8-bit weights: the activations are quantised in each step."""

    name, sum_type, in_fours = "hybrid", "int32", True

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

    def gate(self, gate: int, total: Any, bias: Any, recurrent: Any) -> Any:
        for item, step, scales in zip((total, recurrent), self._steps, self._scales, strict=True):
            bias = bias + item.astype("float32") * (step * tirx.FloatImm("float32", scales[gate]))
        return bias


def _curve_table() -> Array:
    """Return the table of ``curve_int16``: the logistic function from -256 to 256 of the sigmoid table's steps."""
    right = np.append(lookup.sigmoid_table(), 65535)
    return np.concatenate([65536 - right[:0:-1], right]).astype(np.uint16)


def _saturate(value: Any) -> Any:
    return tirx.call_pure_extern("int32", "saturate_int16", value)


def _scale_of_sum(factor: float) -> tuple[int, int, int]:
    """Return multiplier, addend and shift of ``scale_sum``; a shift below zero goes to the left."""
    multiplier, shift = fixed_point.quantize_multiplier(factor)
    return multiplier, 1 << (-shift - 1) if shift < 0 else 0, -shift


def _scale_product(value: Any, factor: float) -> Any:
    """:func:`rescale_value` of a value from -2**30 to 2**30 - 1, such as a product of two gates."""
    multiplier, shift = fixed_point.quantize_multiplier(factor)
    if shift >= 0:
        return rescale_value(value, factor)
    half = number(1 << (-shift - 1))
    return tirx.call_pure_extern("int32", "scale_sum", value, number(multiplier), half, number(-shift))


class _IntegerCell(_Cell):
    """Integer arithmetic; gates and cell state have 16 bits."""

    gate_type = "int16"

    def __init__(self, use: Use, clip: float) -> None:
        data, state, hidden = use.input(0), use.input(_CELL_STATE), use.input(_HIDDEN_STATE)
        self._wide = data.dtype == "int16"
        self.name = data.dtype
        self.sum_type = self.bias_type = "int64" if self._wide else "int32"
        self.data_zero, self.hidden_zero = zero_of(data), zero_of(hidden)
        self._zero = self.hidden_zero
        self.tables = (_curve_table(),)
        bias = max(int(np.abs(use.constant(place).astype(np.int64)).max()) for place in _BIASES)
        depths = [use.input(places[0]).shape[1] for places in (_WEIGHTS, _RECURRENT)]
        # Of a sum of products: 255 times 128, the most that a value without its zero point and a weight can be.
        self._largest = 255 * 128 * max(depths) + bias
        self._reals = [
            [self._real(item, use.input(weights)) for item, weights in ((data, own), (hidden, recurrent))]
            for own, recurrent in zip(_WEIGHTS, _RECURRENT, strict=True)
        ]
        scale, curve = np.float64(scale_of(state)), np.float64(_CURVE_SCALE)
        self._forget, self._input = float(curve * scale / scale), float(curve * curve / scale)
        self._hidden, self._kind = float(curve * curve / np.float64(scale_of(hidden))), hidden.dtype
        mantissa, exponent = math.frexp(float(scale))
        if mantissa != 0.5:
            raise CompileError(f"the scale of its cell state, {float(scale)}, is not a power of two")
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

    @property
    def numbers(self) -> Array | None:
        """Numbers of ``lstm_step``; None if the cell needs more than it computes."""
        factors = [*(real for gate in self._reals for real in gate), self._forget, self._input, self._hidden]
        scales = [_scale_of_sum(factor) for factor in factors]
        # Of the products of gates, all shifts go to the right.
        shifts = [shift for _, _, shift in scales]
        if self._wide or self._factor > 1 << 15 or max(shifts) > 30 or min(shifts[8:]) < 1:
            return None
        if self._largest << max(0, -min(shifts)) >= 1 << 30:
            return None
        bounds = (-self._clip, self._clip) if self._clip else _INT16
        rounding = 1 << (self._places - 1) if self._places else 0
        state = (self._factor, rounding, self._places, *bounds, self._zero)
        return np.array([*(item for scale in scales for item in scale), *state], np.int32)

    def product(self, value: Any, factor: Any, zero: int) -> Any:
        return ((value.astype("int32") - number(zero)) * factor.astype("int32")).astype(self.sum_type)

    def gate(self, gate: int, total: Any, bias: Any, recurrent: Any) -> Any:
        parts = [
            _saturate(self._rescale(item, real))
            for item, real in zip((total + bias, recurrent), self._reals[gate], strict=True)
        ]
        return _saturate(parts[0] + parts[1])

    def _rescale(self, total: Any, real: float) -> Any:
        if not self._wide:
            return _scale_product(total, real) if self._largest < 1 << 30 else rescale_value(total, real)
        multiplier, shift = narrow_multiplier(real)
        return rescale_wide(total, number(multiplier, "int64"), number(shift, "int64"))

    def curve(self, value: Any, logistic: bool, tables: Sequence[Any]) -> Any:
        return self._curve(value * number(3), logistic, tables)

    def _curve(self, scaled: Any, logistic: bool, tables: Sequence[Any]) -> Any:
        table = tirx.address_of(tables[0][256])
        return tirx.call_pure_extern("int32", f"curve_int16_{9 if logistic else 8}", scaled, table)

    def next_state(self, state: Any, gates: Sequence[Any]) -> Any:
        forget, entered, candidate = (gate.astype("int32") for gate in gates[:3])
        retained = _saturate(_scale_product(forget * state.astype("int32"), self._forget))
        new = _saturate(_scale_product(entered * candidate, self._input))
        bounds = (-self._clip, self._clip) if self._clip else _INT16
        return clamp_value(_saturate(retained + new), *bounds, "int16")

    def result(self, state: Any, gate: Any, tables: Sequence[Any]) -> Any:
        rounding = number(1 << (self._places - 1) if self._places else 0)
        scaled = tirx.shift_right(state.astype("int32") * number(self._factor) + rounding, number(self._places))
        curved = self._curve(scaled, False, tables)
        value = _scale_product(curved.astype("int32") * gate.astype("int32"), self._hidden) + number(self._zero)
        info = np.iinfo(self._kind)
        return clamp_value(value, int(info.min), int(info.max), self._kind)


KERNEL = Kernel(tflite={"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm})
