# SPDX-License-Identifier: Apache-2.0
"""What is computed element by element in 16 bits: ADD, SUB, MUL, SQUARED_DIFFERENCE, LEAKY_RELU, QUANTIZE, ..."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tflite
from tvm import relax, te, tirx

from utvm.compiler.integer.exact import (
    added,
    broadcast,
    clamped,
    limits,
    number,
    rescaled,
    scale_of,
    zero_of,
)
from utvm.compiler.integer.operators.quantisation import Rounding, rounded
from utvm.compiler.tflite_kernel import Kernel, Use
from utvm.compiler.tvm_types import shape_of
from utvm.errors import CompileError

_ADDITION_SHIFT = 15  # Bits behind the operands of an addition in 16 bits; 20 in 8.
_OPTIONS = {"ADD": tflite.AddOptions, "SUB": tflite.SubOptions, "MUL": tflite.MulOptions}


def _is_16_bits(use: Use) -> bool:
    return use.result.dtype == "int16" and use.result.quantisation is not None


def _binary(use: Use, operands: list[Any], compute: Any, activation: int = 0) -> Any:
    """Add an operator on two tensors of int16, which are broadcast."""
    name = use.operator.name.lower()
    bounds = limits(activation, use.result)

    def element(first: Any, second: Any) -> Any:
        def at(*place: Any) -> Any:
            a, b = (broadcast(each, place).astype("int32") for each in (first, second))
            value = compute(a - zero_of(use.input(0)), b - zero_of(use.input(1)))
            return clamped(value + zero_of(use.result), bounds, use.result.dtype)

        return te.compute(use.result.shape, at, "output")

    return added(use.builder, f"{name}_{use.result.dtype}", operands, element, in_place=True)


def _add(use: Use, operands: list[Any]) -> Any:
    if not _is_16_bits(use):
        return None
    scales = [np.float64(scale_of(use.input(count))) for count in (0, 1)]
    common = 2 * max(scales)
    output = common / ((1 << _ADDITION_SHIFT) * np.float64(scale_of(use.result)))

    def compute(a: Any, b: Any) -> Any:
        first, second = (
            rescaled(tirx.shift_left(each, number(_ADDITION_SHIFT)), float(scale / common))
            for each, scale in zip((a, b), scales, strict=True)
        )
        total = first + second if use.operator.name == "ADD" else first - second
        return rescaled(total, float(output))

    options = use.options(_OPTIONS[use.operator.name])
    return _binary(use, operands, compute, options.FusedActivationFunction())


def _multiply(use: Use, operands: list[Any]) -> Any:
    if not _is_16_bits(use):
        return None
    first, second, result = (np.float64(scale_of(each)) for each in (use.input(0), use.input(1), use.result))
    activation = use.options(_OPTIONS["MUL"]).FusedActivationFunction()
    return _binary(use, operands, lambda a, b: rescaled(a * b, float(first * second / result)), activation)


def _squared_difference(use: Use, operands: list[Any]) -> Any:
    if use.result.quantisation is None:
        difference = use.builder.emit(relax.op.subtract(*operands))
        return relax.op.multiply(difference, difference)
    if use.result.dtype not in ("int8", "int16") or use.result.quantisation is None:
        return None
    shift = 7 if use.result.dtype == "int8" else 0
    scales = [np.float64(scale_of(use.input(count))) for count in (0, 1)]
    common = 2 * max(scales)
    output = common * common / (1 << 2 * shift) / np.float64(scale_of(use.result))

    def compute(a: Any, b: Any) -> Any:
        first, second = (
            rescaled(tirx.shift_left(each, number(shift)), float(scale / common))
            for each, scale in zip((a, b), scales, strict=True)
        )
        return rescaled((first - second) * (first - second), float(output))

    return _binary(use, operands, compute)


def _relu(use: Use, operands: list[Any]) -> Any:
    if not _is_16_bits(use):
        return None
    source, target = (np.float64(scale_of(each)) for each in (use.input(0), use.result))
    alpha = np.float64(0)
    if use.operator.name == "LEAKY_RELU":
        alpha = np.float64(np.float32(use.options(tflite.LeakyReluOptions).Alpha()))

    def element(data: Any) -> Any:
        def at(*place: Any) -> Any:
            value = data[place].astype("int32") - zero_of(use.input(0))
            above = rescaled(value, float(source / target))
            below = rescaled(value, float(source * alpha / target))
            chosen = tirx.Select(value >= number(0), above, below) + zero_of(use.result)
            return clamped(chosen, limits(0, use.result), "int16")

        return te.compute(use.result.shape, at, "output")

    return added(use.builder, f"{use.operator.name.lower()}_int16", operands, element, in_place=True)


def _quantize(use: Use, operands: list[Any]) -> Any:
    """Bring integers to another scale; what was in 8 bits and stays there is a table."""
    kinds = (use.dtype(), use.result.dtype)
    if kinds == ("float32", "int16"):
        return _from_real(use, operands)
    if kinds == ("float32", "int32"):
        raise CompileError("from float32 to int32 is not supported")
    narrow = all(kind in ("int8", "uint8") for kind in kinds)
    if narrow or kinds[0] == "float32" or use.input(0).quantisation is None:
        return None
    real = float(np.float64(scale_of(use.input(0))) / np.float64(scale_of(use.result)))

    def element(data: Any) -> Any:
        def at(*place: Any) -> Any:
            value = rescaled(data[place].astype("int32") - zero_of(use.input(0)), real)
            if kinds[1] == "int32":
                return value + zero_of(use.result)
            return clamped(value + zero_of(use.result), limits(0, use.result), kinds[1])

        return te.compute(use.result.shape, at, "output")

    return added(use.builder, f"quantize_{kinds[0]}_{kinds[1]}", operands, element, in_place=True)


def _from_real(use: Use, operands: list[Any]) -> Any:
    """Bring real numbers to 16 bits; those that become 8 bits are read where a model's floats end."""
    record = Rounding(use.result.shape, float(scale_of(use.result)), zero_of(use.result), "int16", "roundf")

    def element(data: Any) -> Any:
        return te.compute(use.result.shape, lambda *place: rounded(data[place], record), "output")

    return added(use.builder, "quantize_float32_int16", operands, element)


def _absolute(use: Use, operands: list[Any]) -> Any:
    dtype = use.result.dtype
    if dtype not in ("int8", "int16") or use.dtype() != dtype:
        return None
    real = float(np.float64(scale_of(use.input(0))) / np.float64(scale_of(use.result)))

    def element(data: Any) -> Any:
        def at(*place: Any) -> Any:
            value = data[place].astype("int32") - zero_of(use.input(0))
            size = rescaled(tirx.max(value, number(0) - value), real) + zero_of(use.result)
            return clamped(size, limits(0, use.result), dtype)

        return te.compute(use.result.shape, at, "output")

    return added(use.builder, f"abs_{dtype}", operands, element, in_place=True)


def _prelu(use: Use, operands: list[Any]) -> Any:
    if use.result.dtype != "int8" or use.dtype() != "int8" or use.dtype(1) != "int8":
        return None
    source, slope, target = (np.float64(scale_of(each)) for each in (use.input(0), use.input(1), use.result))

    def compute(a: Any, b: Any) -> Any:
        below = rescaled(a * b, float(source * slope / target))
        return tirx.Select(a >= number(0), rescaled(a, float(source / target)), below)

    return _binary(use, operands, compute)


def _relu6(use: Use, operands: list[Any]) -> Any:
    """Limit the numbers as they are: the kernel knows no scale of its result."""
    if use.result.dtype not in ("int8", "int16") or use.input(0).quantisation is None:
        return None
    low, high = limits(tflite.ActivationFunctionType.RELU6, use.input(0))

    def element(data: Any) -> Any:
        def at(*place: Any) -> Any:
            return clamped(data[place].astype("int32"), (max(low, zero_of(use.input(0))), high), use.result.dtype)

        return te.compute(use.result.shape, at, "output")

    if scale_of(use.input(0)) == scale_of(use.result) and zero_of(use.input(0)) == zero_of(use.result):
        return None
    return added(use.builder, f"relu6_{use.result.dtype}", operands, element, in_place=True)


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
    """Compare quantised numbers by what they stand for, with 8 bits behind the point."""
    if use.dtype() != "int8" or use.input(0).quantisation is None:
        return None
    compare = _COMPARED[use.operator.name]

    def element(first: Any, second: Any) -> Any:
        def at(*place: Any) -> Any:
            a, b = (
                rescaled(
                    tirx.shift_left(
                        broadcast(each, place).astype("int32") - zero_of(use.input(count)),
                        number(_COMPARISON_SHIFT),
                    ),
                    float(scale_of(use.input(count))),
                )
                for count, each in enumerate((first, second))
            )
            return compare(a, b)

        return te.compute(use.result.shape, at, "output")

    return added(use.builder, f"{use.operator.name.lower()}_{use.dtype()}", operands, element)


def _join(use: Use, operands: list[Any]) -> Any:
    """Join tensors of several scales: of uint8, each number is brought to the result's; of int16 it is left."""
    if use.result.dtype not in ("int16", "uint8"):
        return None
    tensors = [use.input(count) for count in range(len(operands))]
    own, zero = scale_of(use.result), zero_of(use.result)
    if all(scale_of(each) == own and zero_of(each) == zero for each in tensors):
        return None
    axis = use.options(tflite.ConcatenationOptions).Axis() % len(use.result.shape)
    if use.result.dtype == "int16":
        return relax.op.concat(operands, axis=axis)
    if any(use.value(count) is not None for count in range(len(operands))):
        return None
    inverse = np.float32(1) / own
    parts = []
    for tensor, operand in zip(tensors, operands, strict=True):
        factor = scale_of(tensor) * inverse
        reals = np.arange(256, dtype=np.float32) * factor + np.float32(-zero_of(tensor)) * factor
        steps = np.copysign(np.floor(np.abs(reals.astype(np.float64)) + 0.5), reals).astype(np.int64)
        table = np.clip(steps + zero, 0, 255).astype(np.uint8)
        alike = scale_of(tensor) == own and zero_of(tensor) == zero
        parts.append(operand if alike else _looked_up(use, operand, table))
    return relax.op.concat([use.builder.emit(each) for each in parts], axis=axis)


def _looked_up(use: Use, operand: Any, table: Any) -> Any:
    shape = shape_of(operand.ty)

    def compute(data: Any, entries: Any) -> Any:
        return te.compute(shape, lambda *at: entries[data[at].astype("int32")], "output")

    return added(use.builder, "requantize_uint8", [operand, table], compute, in_place=True)


def _zeros(use: Use, operands: list[Any]) -> Any:
    return relax.const(np.zeros(use.result.shape, use.result.dtype), use.result.dtype)


KERNELS: dict[str, Kernel] = {
    "ABS": _absolute,
    "PRELU": _prelu,
    "ADD": _add,
    "SUB": _add,
    "MUL": _multiply,
    "SQUARED_DIFFERENCE": _squared_difference,
    **dict.fromkeys(("RELU", "LEAKY_RELU"), _relu),
    "QUANTIZE": _quantize,
    "RELU6": _relu6,
    "ZEROS_LIKE": _zeros,
    "CONCATENATION": _join,
    **dict.fromkeys(_COMPARED, _compare),
}
