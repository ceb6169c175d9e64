# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators of TensorFlow Lite, bit-exact with its kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tflite
from tvm import relax, te, tirx

from utvm.compiler.kernels import Kernel, fixed_point, functions
from utvm.compiler.kernels.arithmetic import broadcast, clamp_value, number, rescale_by, rescale_value
from utvm.compiler.kernels.use import Use, limits, quantity, scale_of, zero_of


def _binary(use: Use, operands: list[Any], compute: Callable[[Any, Any], Any]) -> Any:

    def element(first: Any, second: Any) -> Any:
        a, b = first.astype("int32"), second.astype("int32")
        value = compute(a - zero_of(use.input(0)), b - zero_of(use.input(1)))
        return clamp_value(value + zero_of(use.result), *limits(0, use.result), use.result.dtype)

    name = f"{use.operator.name.lower()}_{use.result.dtype}"
    return functions.add_elementwise(use.builder, name, operands, use.result.shape, element)


def _squared_difference(use: Use, operands: list[Any]) -> Any:
    if use.result.quantisation is None:
        difference = use.builder.emit(relax.op.subtract(*operands))
        return relax.op.multiply(difference, difference)
    if use.result.dtype not in ("int8", "int16"):
        return None
    shift = 7 if use.result.dtype == "int8" else 0
    scales = [np.float64(scale_of(use.input(count))) for count in (0, 1)]
    common = 2 * max(scales)
    output = common * common / (1 << 2 * shift) / np.float64(scale_of(use.result))

    def compute(a: Any, b: Any) -> Any:
        first, second = (
            rescale_value(tirx.shift_left(value, number(shift)), float(scale / common))
            for value, scale in zip((a, b), scales, strict=True)
        )
        return rescale_value((first - second) * (first - second), float(output))

    return _binary(use, operands, compute)


def relu(use: Use, operands: list[Any]) -> Any:
    if use.result.dtype != "int16" or use.result.quantisation is None:
        return None
    source, target = (np.float64(scale_of(item)) for item in (use.input(0), use.result))
    alpha = np.float64(0)
    if use.operator.name == "LEAKY_RELU":
        alpha = np.float64(np.float32(use.options(tflite.LeakyReluOptions).Alpha()))

    def element(data: Any) -> Any:
        value = data.astype("int32") - zero_of(use.input(0))
        above = rescale_value(value, float(source / target))
        below = rescale_value(value, float(source * alpha / target))
        result = tirx.Select(value >= number(0), above, below) + zero_of(use.result)
        return clamp_value(result, *limits(0, use.result), "int16")

    name = f"{use.operator.name.lower()}_int16"
    return functions.add_elementwise(use.builder, name, operands, use.result.shape, element)


def absolute(use: Use, operands: list[Any]) -> Any:
    dtype = use.result.dtype
    if dtype not in ("int8", "int16") or use.dtype() != dtype:
        return None
    real = float(np.float64(scale_of(use.input(0))) / np.float64(scale_of(use.result)))

    def element(data: Any) -> Any:
        value = data.astype("int32") - zero_of(use.input(0))
        size = rescale_value(tirx.max(value, number(0) - value), real) + zero_of(use.result)
        return clamp_value(size, *limits(0, use.result), dtype)

    return functions.add_elementwise(use.builder, f"abs_{dtype}", operands, use.result.shape, element)


def _prelu(use: Use, operands: list[Any]) -> Any:
    if use.result.dtype != "int8" or use.dtype() != "int8" or use.dtype(1) != "int8":
        return None
    source, slope, target = (np.float64(scale_of(item)) for item in (use.input(0), use.input(1), use.result))

    def compute(a: Any, b: Any) -> Any:
        below = rescale_value(a * b, float(source * slope / target))
        return tirx.Select(a >= number(0), rescale_value(a, float(source / target)), below)

    return _binary(use, operands, compute)


def relu6(use: Use, operands: list[Any]) -> Any:
    """Clamp the raw integers: the kernel ignores the result's scale."""
    if use.result.dtype not in ("int8", "int16") or use.input(0).quantisation is None:
        return None
    low, high = limits(tflite.ActivationFunctionType.RELU6, use.input(0))
    low, dtype = max(low, zero_of(use.input(0))), use.result.dtype
    if scale_of(use.input(0)) == scale_of(use.result) and zero_of(use.input(0)) == zero_of(use.result):
        return None

    def element(data: Any) -> Any:
        return clamp_value(data.astype("int32"), low, high, dtype)

    return functions.add_elementwise(use.builder, f"relu6_{dtype}", operands, use.result.shape, element)


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "EQUAL": lambda a, b: a == b,
    "NOT_EQUAL": lambda a, b: a != b,
    "GREATER": lambda a, b: a > b,
    "GREATER_EQUAL": lambda a, b: a >= b,
    "LESS": lambda a, b: a < b,
    "LESS_EQUAL": lambda a, b: a <= b,
}
_COMPARISON_SHIFT = 8


def _compare(use: Use, operands: list[Any]) -> Any:
    """Compare quantised numbers by their real values, with 8 fractional bits."""
    if use.dtype() != "int8" or use.input(0).quantisation is None:
        return None
    compare = _COMPARED[use.operator.name]

    def real(count: int, value: Any) -> Any:
        shifted = tirx.shift_left(value.astype("int32") - zero_of(use.input(count)), number(_COMPARISON_SHIFT))
        return rescale_value(shifted, float(scale_of(use.input(count))))

    def element(*values: Any) -> Any:
        return compare(*(real(count, value) for count, value in enumerate(values)))

    name = f"{use.operator.name.lower()}_{use.dtype()}"
    return functions.add_elementwise(use.builder, name, operands, use.result.shape, element, in_place=False)


def _divide(use: Use, operands: list[Any]) -> Any:
    if use.result.dtype != "int8" or use.result.quantisation is None:
        return None
    first, second = use.input(0), use.input(1)
    real = float(np.float64(scale_of(first)) / (np.float64(scale_of(second)) * np.float64(scale_of(use.result))))
    multiplier, shift = fixed_point.quantize_multiplier(real)
    sizes = range(256)
    lengths = np.array([max(size, 1).bit_length() for size in sizes], np.int32)
    inverses = [
        fixed_point.reciprocal_of_one_plus((max(size, 1) << (32 - max(size, 1).bit_length())) - 2**31) for size in sizes
    ]
    bounds = limits(use.options(tflite.DivOptions).FusedActivationFunction(), use.result)

    def compute(a: Any, b: Any, inverse: Any, length: Any) -> Any:
        shape = use.result.shape
        below = te.compute(shape, lambda *at: broadcast(b, at).astype("int32") - number(zero_of(second)), "below")
        size = te.compute(shape, lambda *at: tirx.min(tirx.max(below[at], number(0) - below[at]), number(255)), "size")

        def numerator(*at: Any) -> Any:
            above = broadcast(a, at).astype("int32") - number(zero_of(first))
            return tirx.Select(below[at] < number(0), number(0) - above, above)

        value = te.compute(shape, numerator, "value")

        def free(*at: Any) -> Any:
            # Shift the numerator left as far as it fits beside its sign.
            own = tirx.Select(value[at] < number(0), number(-1) - value[at], value[at])
            used = tirx.Select(own == number(0), number(0), length[tirx.min(own, number(255))])
            return number(31) - used

        room = te.compute(shape, free, "room")

        def divide(*at: Any) -> Any:
            return rescale_by(tirx.shift_left(value[at], room[at]), inverse[size[at]], number(0))

        quotient = te.compute(shape, divide, "quotient")
        # Undo the numerator's left shift and the reciprocal's fractional bits.
        total = te.compute(shape, lambda *at: number(shift + 1) - length[size[at]] - room[at], "total")

        def output(*at: Any) -> Any:
            scaled = rescale_by(quotient[at], number(multiplier), total[at])
            return clamp_value(scaled + number(zero_of(use.result)), *bounds)

        return te.compute(shape, output, "output")

    constants = [np.array(inverses, np.int32), lengths]
    return functions.add_function(use.builder, "divide_int8", [*operands, *constants], compute)


def _of_integers(use: Use, operands: list[Any]) -> Any:
    last_two = [use.input(count) for count in range(len(operands) - 2, len(operands))]
    known = quantity(use.result)
    if use.result.dtype not in ("int8", "uint8") or known is None:
        return None
    if any(tensor.dtype != use.result.dtype or quantity(tensor) != known for tensor in last_two):
        return None
    return _CHOSEN[use.operator.name](*operands)


_CHOSEN: dict[str, Callable[..., Any]] = {
    "MAXIMUM": relax.op.maximum,
    "MINIMUM": relax.op.minimum,
    "SELECT": relax.op.where,
    "SELECT_V2": relax.op.where,
}

KERNEL = Kernel(
    tflite={
        "DIV": _divide,
        "PRELU": _prelu,
        "SQUARED_DIFFERENCE": _squared_difference,
        "ZEROS_LIKE": lambda use, _: relax.const(np.zeros(use.result.shape, use.result.dtype), use.result.dtype),
        **dict.fromkeys(_COMPARED, _compare),
        **dict.fromkeys(_CHOSEN, _of_integers),
    }
)
