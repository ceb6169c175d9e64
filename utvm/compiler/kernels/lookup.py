# SPDX-License-Identifier: Apache-2.0
"""Functions of one int8 number as tables of 256 results, and int16 curves interpolated from a table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
import tvm
from tvm import te, tirx

from utvm.compiler.kernels import Kernel, Unfit, fixed_point
from utvm.compiler.kernels.arithmetic import number
from utvm.compiler.kernels.elementwise import absolute, relu, relu6
from utvm.compiler.kernels.functions import add_function, describe, with_one_loop
from utvm.compiler.kernels.quantities import Quantity, Real, View
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.records import Int8, Operator, Unary
from utvm.compiler.kernels.use import Use, known_quantity, scale_of, zero_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import operator_name, shape_of
from utvm.errors import CompileError

_STEPS = 24  # Entries of the sigmoid's table per unit.
_INTEGER_BITS = 3
_MOST_FACTOR = 1 << 16  # Applied to a 16-bit number.


def sigmoid_table() -> npt.NDArray[np.int32]:
    """Return the logistic function from 0 to 10.6, 16 fractional bits; interpolation errors are halved."""

    def real(place: float) -> float:
        return 65536 / (1 + math.exp(-place / _STEPS))

    def entry(place: int) -> int:
        error = real(place + 0.5) - (real(place) + real(place + 1)) / 2
        return min(math.floor(real(place) + error / 2 + 0.5), 65535)

    return np.array([*(entry(place) for place in range(255)), 65535], np.int32)


def _input_factor(scale: np.float32, shifts: tuple[int, ...]) -> tuple[int, int]:
    mantissa, exponent = math.frexp(float(scale))
    shift = 15 - _INTEGER_BITS + exponent - 1
    if mantissa == 0.5 and shift in shifts:
        return 3 << shift, 0
    factor, places = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and places <= 30:
        places += 1
        factor *= 2.0
    return int(factor), places


def curve(use: Use, operands: list[Any]) -> Any:
    if use.dtype() != "int16" or use.result.dtype != "int16":
        return None
    if scale_of(use.result) != np.float32(1 / 32768) or zero_of(use.result) or zero_of(use.input(0)):
        raise CompileError("in 16 bits its result must have the scale 1/32768, and no zero point may be but 0")
    logistic = use.operator.name == "LOGISTIC"
    factor, places = _input_factor(scale_of(use.input(0)), (0,) if logistic else (0, 1))
    if factor > _MOST_FACTOR:
        raise CompileError(f"the scale of its input, {scale_of(use.input(0))}, is more than a product of 32 bits holds")

    def compute(data: Any, table: Any) -> Any:
        shape = use.result.shape
        rounding = number(1 << (places - 1) if places else 0)
        value = te.compute(
            shape,
            lambda *at: tirx.shift_right(data[at].astype("int32") * number(factor) + rounding, number(places)),
            "value",
        )
        size = te.compute(shape, lambda *at: tirx.max(value[at], number(0) - value[at]), "size")
        half = te.compute(shape, lambda *at: interpolate(size[at], table, logistic), "curve")
        return te.compute(shape, lambda *at: mirror(value[at], half[at], logistic), "output")

    name = f"{use.operator.name.lower()}_int16"
    return add_function(use.builder, name, [operands[0], sigmoid_table()], compute, in_place=True)


def interpolate(size: Any, table: Any, logistic: bool) -> Any:
    """Return LOGISTIC or TANH of a non-negative number, not rounded."""
    # The table has an entry every 512 steps; tanh(x) = 2 sigmoid(2 x) - 1.
    bits = 9 if logistic else 8
    first = tirx.shift_right(size, number(bits))
    low, high = table[tirx.min(first, number(255))], table[tirx.min(first + number(1), number(255))]
    rest = tirx.bitwise_and(size, number((1 << bits) - 1))
    top = 0x7FFF << 10 if logistic else 0xFFFF << 8
    inside = tirx.shift_left(low, number(bits)) + rest * (high - low)
    return tirx.Select(first >= number(255), number(top), inside)


def mirror(value: Any, curve: Any, logistic: bool) -> Any:
    """Return LOGISTIC or TANH of any number, with 15 fractional bits."""
    if logistic:
        positive = curve + number(1 << 9)
        negative = number((1 << 25) + (1 << 9) - 1) - curve
    else:
        positive = curve - number(1 << 23) + number(1 << 7)
        negative = number(1 << 23) - curve + number((1 << 7) - 1)
    result = tirx.Select(value >= number(0), positive, negative)
    return tirx.shift_right(result, number(10 if logistic else 8)).astype("int16")


Floats = npt.NDArray[np.float32]

_LOGISTIC = Quantity(1 / 256, -128)
_TANH = Quantity(1 / 128, 0)
_FRACTION_BITS = 27  # Fractional bits of the inputs of logistic and tanh.
_ROOT_BITS = 20  # Bits of a root kept while it is rescaled.

_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: dict[str, Callable[[Floats], Any]] = {
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.nn.silu": lambda x: x / (1 + np.exp(-x)),
    "relax.nn.gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "relax.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relax.tanh": np.tanh,
    "relax.erf": _erf,
    "relax.exp": np.exp,
    "relax.log": np.log,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: 1 / np.sqrt(x),
    "relax.square": np.square,
    "relax.abs": np.abs,
    "relax.negative": np.negative,
    "relax.floor": np.floor,
    "relax.ceil": np.ceil,
    "relax.sin": np.sin,
    "relax.cos": np.cos,
}
_ONE, _HALF, _THREE, _SIX = (np.float32(value) for value in (1, 0.5, 3, 6))
_TFLITE: dict[str, Callable[[Floats], Any]] = {
    "ABS": np.abs,
    "CEIL": np.ceil,
    "COS": np.cos,
    "ELU": lambda x: -np.maximum(_ONE - np.exp(x), 0) + np.maximum(x, 0),
    "EXP": np.exp,
    "FLOOR": np.floor,
    "GELU": lambda x: x * (_HALF + _erf(x * np.float32(0.5**0.5)).astype(np.float32) * _HALF),
    "HARD_SWISH": lambda x: x * np.clip(x + _THREE, 0, 6) / _SIX,
    "LOG": np.log,
    "LOGISTIC": lambda x: _ONE / (_ONE + np.exp(-x)),
    "NEG": np.negative,
    "ROUND": np.rint,
    "SIGN": np.sign,
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "TANH": np.tanh,
}
_LIMITS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}
_BINARY: dict[str, Callable[[Floats, Floats], Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.power": np.power,
}


@dataclass(frozen=True)
class Lookup(Unary):
    """A function of one int8 number, as a table of 256 results starting with -128."""

    table: Int8
    name: str


def look_up(reader: Reader, view: View, table: Int8, operator: str, name: str) -> View:
    shape = view.base.shape
    return replace(view, base=reader.add(Lookup(shape or (1,), table, operator), [view.base], name, shape))


def requantize_view(reader: Reader, real: Real, target: Quantity, name: str) -> View:
    if real.quantity == target:
        return real.view
    return look_up(reader, real.view, requantisation(real.quantity, target), "requantize", name)


def tabulate(reader: Reader, expression: Any, target: Quantity, name: str) -> View | None:
    """Add the node of any function of one number; None if the expression is not one."""
    leaves = _leaves(reader, expression)
    if len(leaves) != 1:
        return None
    (leaf,) = leaves
    real = reader.real(leaf)
    if real is None or shape_of(expression.ty) != real.view.shape:
        return None
    table, operator = _table(reader, expression, leaf, real.quantity, target)
    return None if table is None else look_up(reader, real.view, table, operator, name)


def _table(reader: Reader, expression: Any, leaf: Any, source: Quantity, target: Quantity) -> tuple[Int8 | None, str]:
    call = reader.call(expression)
    operator = operator_name(call)
    table = None
    if operator == "relax.sigmoid" and call.args[0].same_as(leaf):
        table = logistic(source, target)
    elif operator == "relax.tanh" and call.args[0].same_as(leaf):
        table = tanh(source, target)
    elif operator == "relax.nn.leakyrelu" and call.args[0].same_as(leaf):
        table = leaky_relu(source, target, float(call.attrs.alpha))
    elif (x := _hard_swish_operand(reader, expression)) is not None and x.same_as(leaf):
        table, operator = hard_swish(source, target), "relax.hard_swish"
    if table is None:
        table = _of_reals(lambda x: _evaluate(reader, expression, x), source, target, exact=True)
    return table, operator.rpartition(".")[2]


def _tflite(use: Use, operands: list[Any]) -> Any:
    name = use.operator.name
    exact = {"ABS": absolute, "RELU6": relu6}.get(name)
    if exact and (result := exact(use, operands)) is not None:
        return result
    if not use.is_all("int8", "uint8"):
        wide = {"LOGISTIC": curve, "TANH": curve, "RELU": relu, "LEAKY_RELU": relu}.get(name)
        return wide and wide(use, operands)
    table = _tflite_table(use)
    if table is None:
        raise Unfit("it is not defined for some of its inputs")

    def build(reader: Reader, arguments: Sequence[Any], tensor: str) -> View:
        return look_up(reader, use.real(reader, arguments).view, table, name.lower(), tensor)

    return use.layer(build, operands, use.input(0).shape)


def _tflite_table(use: Use) -> Int8 | None:
    name, source, target = use.operator.name, known_quantity(use.input(0)), use.goal().quantity
    if name in _LIMITS:
        low, high = (
            127 if math.isinf(bound) else fixed_point.quantized_limit(bound, target.scale, target.zero)
            for bound in _LIMITS[name]
        )
        return requantisation(source, target, low, high)
    if name == "LEAKY_RELU":
        return leaky_relu(source, target, use.options(tflite.LeakyReluOptions).Alpha())
    if name == "RSQRT":
        return inverse_root(source, target)
    exact = {"LOGISTIC": logistic, "TANH": tanh, "HARD_SWISH": hard_swish}.get(name)
    table = None if exact is None else exact(source, target)
    return _of_reals(_TFLITE[name], source, target, exact=False) if table is None else table


def requantisation(source: Quantity, target: Quantity, low: int = -128, high: int = 127) -> Int8:
    """Return the table that converts to another scale and zero point, as TensorFlow Lite's QUANTIZE does."""
    multiplier, shift = fixed_point.quantize_multiplier(source.scale / target.scale)

    def function(number: int) -> int:
        value = fixed_point.requantize(number - source.zero, multiplier, shift) + target.zero
        return max(low, min(high, value))

    return fixed_point.table_of(function)


def logistic(source: Quantity, target: Quantity) -> Int8 | None:
    """Return the table of TensorFlow Lite's LOGISTIC; None if the output's scale is not the required one."""
    if target != _LOGISTIC:
        return None
    return _saturating(source, lambda value: fixed_point.divide_by_power(fixed_point.logistic(value), 23) - 128)


def tanh(source: Quantity, target: Quantity) -> Int8 | None:
    """Return the table of TensorFlow Lite's TANH; None if the output's scale is not the required one."""
    if target != _TANH:
        return None
    return _saturating(source, lambda value: fixed_point.divide_by_power(fixed_point.tanh(value), 24))


def leaky_relu(source: Quantity, target: Quantity, alpha: float) -> Int8 | None:
    """Return the table of TensorFlow Lite's LEAKY_RELU; None if the slope is not a number."""
    if not math.isfinite(alpha):
        return None
    above = fixed_point.quantize_multiplier(source.scale / target.scale)
    below = fixed_point.quantize_multiplier(source.scale * float(np.float32(alpha)) / target.scale)

    def function(number: int) -> int:
        value = number - source.zero
        return target.zero + fixed_point.requantize(value, *(above if value >= 0 else below))

    return fixed_point.table_of(function)


def inverse_root(source: Quantity, target: Quantity) -> Int8:
    """Return the table of TensorFlow Lite's RSQRT, for non-negative numbers."""
    scaling, shift = fixed_point.quantize_multiplier(1 / math.sqrt(source.scale) / target.scale)

    def function(number: int) -> int:
        if number <= source.zero:
            return 127
        fraction, power = fixed_point.inverse_root(number - source.zero)
        fine = fixed_point.requantize(1, fraction, power + _ROOT_BITS)
        return target.zero + fixed_point.requantize(fine, scaling, shift - _ROOT_BITS)

    return fixed_point.table_of(function)


def hard_swish(source: Quantity, target: Quantity) -> Int8 | None:
    """Return the table of TensorFlow Lite's HARD_SWISH, computed in 16 bits; None for scales it rejects."""
    fine = np.float32(1 / 128) * np.float32(source.scale)
    output, output_shift = _multiplier_of_16_bits(float(fine / np.float32(target.scale)))
    slope, slope_shift = _multiplier_of_16_bits(float(fine / (np.float32(3) / np.float32(32768))))
    if output_shift > 0:
        return None

    def function(number: int) -> int:
        value = (number - source.zero) * 128
        gate = value
        if slope_shift > 0:
            gate = _int16(gate << (slope_shift - 1))
        gate = fixed_point.multiply_high(gate, slope, 16)
        gate = _int16(gate << 1) if slope_shift > 0 else fixed_point.divide_by_power(gate, -slope_shift)
        gate = (gate + 2**15) >> 1
        product = gate * fixed_point.multiply_high(value, output, 16)
        whole = abs(product) >> 15  # Towards zero.
        return fixed_point.divide_by_power(whole if product >= 0 else -whole, -output_shift) + target.zero

    return fixed_point.table_of(function)


def _of_reals(function: Callable[[Floats], Any], source: Quantity, target: Quantity, *, exact: bool) -> Int8 | None:
    numbers = np.arange(-128, 128, dtype=np.float32)
    with np.errstate(all="ignore"):
        reals = function((numbers - np.float32(source.zero)) * np.float32(source.scale))
    if reals is None or np.isnan(reals).any():
        return None
    if exact:
        whole = np.rint((reals / np.float32(target.scale)).astype(np.float32))
    else:
        steps = (reals * (np.float32(1) / np.float32(target.scale))).astype(np.float32)
        whole = np.trunc(steps + np.copysign(np.float32(0.5), steps))
    return np.asarray(np.clip(whole + target.zero, -128, 127), np.int8)


def _leaves(reader: Reader, expression: Any) -> list[Any]:
    leaves: dict[int, Any] = {}

    def visit(item: Any) -> bool:
        if reader.real(item) is not None:
            leaves[hash(item)] = item
            return True
        if isinstance(item, tvm.ir.GenericConst):
            return bool(item.value.numpy().size == 1)
        call = reader.call(item)
        name = operator_name(call)
        if name in _UNARY or name in ("relax.clip", "relax.nn.leakyrelu"):
            return visit(call.args[0])
        return name in _BINARY and all(visit(argument) for argument in call.args)

    return list(leaves.values()) if visit(expression) else []


def _hard_swish_operand(reader: Reader, expression: Any) -> Any | None:
    """Return the tensor x if an expression is ``x * clip(x + 3, 0, 6) / 6``."""
    division = _call_of(reader, expression, "relax.divide")
    product = _call_of(reader, division.args[0], "relax.multiply") if division is not None else None
    if division is None or product is None or _number(division.args[1]) != 6:
        return None
    limited = _call_of(reader, product.args[1], "relax.clip")
    shifted = _call_of(reader, limited.args[0], "relax.add") if limited is not None else None
    if limited is None or shifted is None or [float(item.value) for item in limited.args[1:]] != [0, 6]:
        return None
    x = product.args[0]
    return x if shifted.args[0].same_as(x) and _number(shifted.args[1]) == 3 else None


def _call_of(reader: Reader, expression: Any, name: str) -> Any | None:
    call = reader.call(expression)
    return call if operator_name(call) == name else None


def _number(expression: Any) -> float | None:
    if isinstance(expression, tvm.ir.GenericConst) and expression.value.numpy().size == 1:
        return float(expression.value.numpy().ravel()[0])
    return None


def _evaluate(reader: Reader, expression: Any, x: Floats) -> Floats | None:
    if reader.real(expression) is not None:
        return x
    if isinstance(expression, tvm.ir.GenericConst):
        return np.full(1, expression.value.numpy().ravel()[0], np.float32)
    call = reader.call(expression)
    name = call.op.name
    values = [_evaluate(reader, item, x) for item in (call.args if name in _BINARY else call.args[:1])]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if name == "relax.clip":
        low, high = (np.float32(float(item.value)) for item in call.args[1:])
        return np.clip(known[0], low, high)
    if name == "relax.nn.leakyrelu":
        return np.where(known[0] > 0, known[0], known[0] * np.float32(call.attrs.alpha))
    result = _BINARY[name](*known) if name in _BINARY else _UNARY[name](known[0])
    return np.asarray(result).astype(np.float32)


def _saturating(source: Quantity, function: Callable[[int], int]) -> Int8:
    real = source.scale * 2**_FRACTION_BITS
    multiplier, shift = fixed_point.quantize_multiplier(real)
    # Radius of a shift that is too large: every number, including zero, is out of range.
    radius = fixed_point.input_radius(31 - _FRACTION_BITS, math.frexp(real)[1])

    def of_number(number: int) -> int:
        value = number - source.zero
        if abs(value) >= radius:
            return -128 if value <= -radius else 127
        return function(fixed_point.requantize(value, multiplier, shift))

    return fixed_point.table_of(of_number)


def _multiplier_of_16_bits(real: float) -> tuple[int, int]:
    multiplier, shift = fixed_point.quantize_multiplier(real)
    return min((multiplier + 2**15) >> 16, 2**15 - 1), shift


def _int16(value: int) -> int:
    return max(-(2**15), min(2**15 - 1, value))


def _make(record: Lookup, _: Target | None) -> Operator:
    data = te.placeholder(record.shape, "int8", "data")
    table = te.placeholder((256,), "int8", "table")
    output = te.compute(record.shape, lambda *at: table[data[at].astype("int32") + 128], "output")
    function = with_one_loop(te.create_prim_func([data, table, output]))
    return Operator(describe(function, f"{record.name}_int8", [0]), (record.table,))


KERNEL = Kernel({Lookup: _make}, tflite=dict.fromkeys((*_TFLITE, *_LIMITS, "LEAKY_RELU", "RSQRT"), _tflite))
