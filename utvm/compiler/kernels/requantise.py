# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's QUANTIZE, and CONCATENATION of tensors with different scales."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite
from tvm import relax, te

from utvm.compiler import kernels, tvm_types
from utvm.compiler.kernels.arithmetic import clamp_value, rescale_value
from utvm.compiler.kernels.functions import add_elementwise, add_function
from utvm.compiler.kernels.lookup import look_up, requantisation, requantize_view
from utvm.compiler.kernels.quantisation import Rounding
from utvm.compiler.kernels.quantities import Native, Value, View
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.use import IntegerLayer, Use, limits, quantity, scale_of, zero_of
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.errors import CompileError


def rounding(result: TfliteTensor, reason: str = "") -> IntegerLayer:
    """Return the layer that quantises a float tensor."""
    record = Rounding(result.shape or (1,), float(scale_of(result)), zero_of(result), result.dtype, "roundf")

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> Value:
        if reason:
            reader.explain(arguments[0], reason)
        return reader.add(record, [reader.value(arguments[0])], name, result.shape, result.dtype)

    return IntegerLayer(build)


def _quantize(use: Use, operands: list[Any]) -> Any:
    kinds = (use.dtype(), use.result.dtype)
    if kinds == ("float32", "int32"):
        raise CompileError("from float32 to int32 is not supported")
    if kinds[0] == "float32":
        return use.layer(rounding(use.result).build, operands, use.input(0).shape)
    if use.input(0).quantisation is None:
        return None
    if all(kind in ("int8", "uint8") for kind in kinds):
        target = use.goal().quantity

        def build(reader: Reader, arguments: Sequence[Any], name: str) -> View:
            return requantize_view(reader, use.real(reader, arguments), target, name)

        return use.layer(build, operands, use.input(0).shape)
    real = float(np.float64(scale_of(use.input(0))) / np.float64(scale_of(use.result)))

    def element(data: Any) -> Any:
        value = rescale_value(data.astype("int32") - zero_of(use.input(0)), real) + zero_of(use.result)
        return value if kinds[1] == "int32" else clamp_value(value, *limits(0, use.result), kinds[1])

    return add_elementwise(use.builder, f"quantize_{kinds[0]}_{kinds[1]}", operands, use.result.shape, element)


def concatenate(reader: Reader, views: Sequence[View], axis: int, name: str) -> View:
    orders = {view.order for view in views}
    order = orders.pop() if len(orders) == 1 else None
    parts = [view.base if order is not None else reader.arrange(view) for view in views]
    along = axis % len(parts[0].shape)
    along = along if order is None else order[along]
    shape = list(parts[0].shape)
    shape[along] = sum(part.shape[along] for part in parts)
    work = Native(lambda inputs: relax.op.concat(list(inputs), axis=along), "relax.concat")
    return View(reader.add(work, parts, name, shape), order)


def _join(use: Use, operands: list[Any]) -> Any:
    if not use.is_all("int8", "int16", "uint8", operands=len(operands)):
        return None
    options = use.options(tflite.ConcatenationOptions)
    axis = options.Axis() % len(use.result.shape)
    if use.result.dtype == "int16":
        return relax.op.concat(operands, axis=axis)
    goal = use.goal(options.FusedActivationFunction())
    alike = all(quantity(tensor) == goal.quantity for tensor in use.inputs if tensor)
    if use.result.dtype == "uint8" and not alike and all(use.value(count) is None for count in range(len(operands))):
        return _join_unsigned(use, operands, axis)

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> View:
        reals = [use.real(reader, arguments, count) for count in range(len(arguments))]
        if goal.is_limited:
            tables = [requantisation(real.quantity, goal.quantity, goal.low, goal.high) for real in reals]
            views = [
                look_up(reader, real.view, table, "requantize", name) for real, table in zip(reals, tables, strict=True)
            ]
        else:
            views = [requantize_view(reader, real, goal.quantity, name) for real in reals]
        return concatenate(reader, views, axis, name)

    shape = list(use.input(0).shape)
    shape[axis] = sum(use.input(count).shape[axis] for count in range(len(operands)))
    return use.layer(build, operands, shape)


def _join_unsigned(use: Use, operands: list[Any], axis: int) -> Any:
    """Join uint8 tensors of several scales, each rounded in single precision, as TFLite's old kernel does."""
    own, zero = scale_of(use.result), zero_of(use.result)
    inverse = np.float32(1) / own
    parts = []
    for count, operand in enumerate(operands):
        tensor = use.input(count)
        factor = scale_of(tensor) * inverse
        reals = np.arange(256, dtype=np.float32) * factor + np.float32(-zero_of(tensor)) * factor
        steps = np.copysign(np.floor(np.abs(reals.astype(np.float64)) + 0.5), reals).astype(np.int64)
        table = np.clip(steps + zero, 0, 255).astype(np.uint8)
        alike = scale_of(tensor) == own and zero_of(tensor) == zero
        parts.append(operand if alike else _look_up(use, operand, table))
    return relax.op.concat([use.builder.emit(part) for part in parts], axis=axis)


def _look_up(use: Use, operand: Any, table: Any) -> Any:
    shape = tvm_types.shape_of(operand.ty)

    def compute(data: Any, entries: Any) -> Any:
        return te.compute(shape, lambda *at: entries[data[at].astype("int32")], "output")

    return add_function(use.builder, "requantize_uint8", [operand, table], compute, in_place=True)


KERNEL = kernels.Kernel(tflite={"QUANTIZE": _quantize, "CONCATENATION": _join})
