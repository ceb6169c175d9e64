# SPDX-License-Identifier: Apache-2.0
"""Products: TensorFlow Lite's MUL and SQUARE in int8 and int16."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from utvm.compiler.kernels import Kernel, fixed_point
from utvm.compiler.kernels.arithmetic import clamp_value, rescale_value
from utvm.compiler.kernels.functions import Shape, binary
from utvm.compiler.kernels.quantities import Goal, Real, View
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.records import Computation, Operator, Rescale
from utvm.compiler.kernels.use import Use
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Product(Computation):
    """The product of two tensors, with broadcasting."""

    shapes: tuple[Shape, Shape]
    zeros: tuple[int, int]
    output: Rescale
    output_zero: int
    low: int
    high: int
    dtype: str = "int8"

    @property
    def output_shape(self) -> Shape:
        return tuple(np.broadcast_shapes(*self.shapes))


def _multiply(reader: Reader, reals: Sequence[Real], goal: Goal, name: str, dtype: str = "int8") -> View:
    first, second = reals
    views, order = reader.align([first.view, second.view])
    record = Product(
        (views[0].shape or (1,), views[1].shape or (1,)),
        (first.quantity.zero, second.quantity.zero),
        fixed_point.rescale([first.quantity.scale * second.quantity.scale / goal.quantity.scale]),
        goal.quantity.zero,
        goal.low,
        goal.high,
        dtype,
    )
    return View(reader.add(record, views, name, record.output_shape, dtype), order)


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    reals = reader.operands(reader.call(core))
    return None if reals is None else _multiply(reader, reals, goal, name)


def _tflite(use: Use, operands: list[Any]) -> Any:
    square = use.operator.name == "SQUARE"
    dtypes = ("int8", "uint8") if square else ("int8", "uint8", "int16")
    if not use.is_all(*dtypes, operands=len(operands)):
        return None
    goal = use.goal(0 if square else use.options(tflite.MulOptions).FusedActivationFunction())

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> View:
        reals = [use.real(reader, arguments, count) for count in ((0, 0) if square else (0, 1))]
        return _multiply(reader, reals, goal, name, "int16" if use.dtype() == "int16" else "int8")

    return use.layer(build, operands, np.broadcast_shapes(*(use.input(n).shape for n in range(len(operands)))))


def _make(record: Product, _: Target | None) -> Operator:
    def element(a: Any, b: Any) -> Any:
        value = rescale_value((a - record.zeros[0]) * (b - record.zeros[1]), record.output) + record.output_zero
        return clamp_value(value, record.low, record.high, record.dtype)

    return binary("multiply", record.shapes, element, record.dtype)


KERNEL = Kernel({Product: _make}, ("relax.multiply",), _recognise, dict.fromkeys(("MUL", "SQUARE"), _tflite))
