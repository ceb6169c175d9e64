# SPDX-License-Identifier: Apache-2.0
"""Sums and differences: TensorFlow Lite's ADD and SUB in int8 and int16, and ADD_N of two tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import tirx

from utvm.compiler import target, tvm_types
from utvm.compiler.kernels import Kernel, arithmetic, fixed_point, functions
from utvm.compiler.kernels.quantities import Goal, Real, Value, View
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.records import Computation, Operator, Rescale
from utvm.compiler.kernels.use import Use

_SHIFTS = {"int8": 20, "int16": 15}  # Left shift of the operands in TensorFlow Lite's kernels.
_EXACT_HALF = 2**30  # A power-of-two multiplier is exact if the number has enough trailing zeros.


@dataclass(frozen=True)
class Addition(Computation):
    """Sum or difference of two tensors, with broadcasting; ``factors`` rescale ``(operand - zero) << shift``."""

    shapes: tuple[functions.Shape, functions.Shape]
    zeros: tuple[int, int]
    factors: tuple[Rescale, Rescale]
    subtract: bool
    output: Rescale
    output_zero: int
    low: int
    high: int
    dtype: str = "int8"

    @property
    def output_shape(self) -> functions.Shape:
        return tuple(np.broadcast_shapes(*self.shapes))


def _add(reader: Reader, reals: Sequence[Real], goal: Goal, subtract: bool, name: str, dtype: str = "int8") -> View:
    first, second = reals
    common = 2 * max(first.quantity.scale, second.quantity.scale)
    views, order = reader.align([first.view, second.view])
    record = Addition(
        (views[0].shape or (1,), views[1].shape or (1,)),
        (first.quantity.zero, second.quantity.zero),
        (fixed_point.rescale([first.quantity.scale / common]), fixed_point.rescale([second.quantity.scale / common])),
        subtract,
        fixed_point.rescale([common / (2 ** _SHIFTS[dtype] * goal.quantity.scale)]),
        goal.quantity.zero,
        goal.low,
        goal.high,
        dtype,
    )
    return View(reader.add(record, views, name, record.output_shape, dtype), order)


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    call = reader.call(core)
    reals = reader.operands(call)
    if reals is None:
        return None
    return _add(reader, reals, goal, tvm_types.operator_name(call) == "relax.subtract", name)


def _tflite(use: Use, operands: list[Any]) -> Any:
    if len(operands) != 2 or not use.is_all("int8", "uint8", "int16", operands=2):
        return None
    options = {"ADD": tflite.AddOptions, "SUB": tflite.SubOptions}.get(use.operator.name)
    goal = use.goal(use.options(options).FusedActivationFunction() if options else 0)
    dtype = "int16" if use.dtype() == "int16" else "int8"

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> View | Value:
        reals = [use.real(reader, arguments, count) for count in (0, 1)]
        return _add(reader, reals, goal, use.operator.name == "SUB", name, dtype)

    return use.layer(build, operands, np.broadcast_shapes(use.input(0).shape, use.input(1).shape))


def _make(record: Addition, _: target.Target | None) -> Operator:
    def element(a: Any, b: Any) -> Any:
        first, second = (
            _scale(value - zero, factor, _SHIFTS[record.dtype])
            for value, zero, factor in zip((a, b), record.zeros, record.factors, strict=True)
        )
        total = first - second if record.subtract else first + second
        return arithmetic.clamp_value(
            arithmetic.rescale_value(total, record.output) + record.output_zero, record.low, record.high, record.dtype
        )

    return functions.binary("subtract" if record.subtract else "add", record.shapes, element, record.dtype)


def _scale(value: Any, factor: Rescale, shift: int) -> Any:
    exponent = shift + int(factor.shifts[0]) - 1
    if int(factor.multipliers[0]) == _EXACT_HALF and 0 <= exponent <= shift:
        return tirx.shift_left(value, arithmetic.number(exponent))
    return arithmetic.rescale_value(tirx.shift_left(value, arithmetic.number(shift)), factor)


KERNEL = Kernel(
    {Addition: _make}, ("relax.add", "relax.subtract"), _recognise, dict.fromkeys(("ADD", "SUB", "ADD_N"), _tflite)
)
