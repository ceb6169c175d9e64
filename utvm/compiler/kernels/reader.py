# SPDX-License-Identifier: Apache-2.0
"""Read a Relax module into nodes; track which float tensors are dequantised integers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from utvm.compiler.kernels.quantisation import Shift
from utvm.compiler.kernels.quantities import (
    Constants,
    Native,
    Node,
    Real,
    Value,
    View,
    dequantise,
    quantity_of,
    tensor_type,
)
from utvm.compiler.kernels.records import Computation
from utvm.compiler.names import UNNAMED
from utvm.compiler.tvm_types import dtype_of, operator_name, shape_of

_EIGHT_BITS = ("int8", "uint8")


class Reader:
    """The variables of ``main`` and the nodes so far; ``reasons`` explains float results, by identity."""

    def __init__(self, main: Any) -> None:
        self.nodes: list[Node] = []
        self.calls: dict[int, Any] = {}
        self.reasons: dict[int, str] = {}
        self._values: dict[int, Value] = {}
        self._views: dict[int, View] = {}
        self._reals: dict[int, Real] = {}
        self._constants: dict[int, Constants] = {}
        # Names of values, by identity, if they differ from their own.
        self._names: dict[int, str] = {}
        self._arranged: dict[tuple[Any, ...], Value] = {}
        self.parameters = [self._declare(parameter) for parameter in main.params]
        for block in main.body.blocks:
            for binding in block.bindings:
                self.calls[hash(binding.var)] = binding.value

    def _declare(self, variable: Any) -> Value:
        value = Value(str(variable.name), variable.ty)
        self._values[hash(variable)] = value
        return value

    def call(self, expression: Any) -> Any:
        return self.calls.get(hash(expression)) if isinstance(expression, tvm.ir.Var) else None

    def real(self, expression: Any) -> Real | None:
        return self._reals.get(hash(expression))

    def constants(self, expression: Any) -> Constants | None:
        return self._constants.get(hash(expression))

    def set_real(self, variable: Any, real: Real) -> None:
        self._reals[hash(variable)] = real

    def set_value(self, variable: Any, value: Value) -> None:
        self._values[hash(variable)] = value
        self._call(value, variable)

    def set_view(self, variable: Any, view: View) -> None:
        self._views[hash(variable)] = view
        self._call(view.base, variable)

    def _call(self, value: Value, variable: Any) -> None:
        if UNNAMED.fullmatch(self.name_of(value)):
            self._names[id(value)] = str(variable.name)

    def name_of(self, value: Value) -> str:
        """Return the model's name of a tensor, as far as it is known."""
        return self._names.get(id(value), value.name)

    def view(self, expression: Any) -> View:
        key = hash(expression)
        if key not in self._views or isinstance(expression, tvm.ir.GenericConst):
            value = self.value(expression)
            if dtype_of(expression.ty) != "uint8":
                return View(value)
            if value.constant is not None:
                lower = (value.constant.astype(np.int16) - 128).astype(np.int8)
                return View(Value(value.name, tensor_type(value.shape, "int8"), lower), None, True)
            base = self.add(Shift(value.shape, "uint8", "int8"), [value], value.name, value.shape)
            self._views[key] = View(base, None, True)
        return self._views[key]

    def value(self, expression: Any) -> Value:
        if isinstance(expression, tvm.ir.GenericConst):
            return Value("a constant", expression.ty, expression.value.numpy())
        key = hash(expression)
        if key not in self._values:
            view = self._views[key]
            value = self.arrange(view)
            if view.unsigned:
                value = self.add(Shift(value.shape, "int8", "uint8"), [value], value.name, value.shape, "uint8")
            self._values[key] = value
        return self._values[key]

    def arrange(self, view: View, axes: Sequence[int] | None = None) -> Value:
        """Return a view's tensor in the model's dimension order, or transposed by ``axes`` from there."""
        order = compose_orders(view.order, axes)
        if order is None:
            return view.base
        key = (id(view.base), order)
        if key not in self._arranged:
            shape = tuple(view.base.shape[axis] for axis in order)
            if view.base.constant is not None:
                array = view.base.constant.transpose(order)
                self._arranged[key] = Value(view.base.name, tensor_type(shape, dtype_of(view.base.type)), array)
            else:
                self._arranged[key] = self.add(
                    _transposition(view.base.shape, order), [view.base], view.base.name, shape
                )
        return self._arranged[key]

    def operands(self, call: Any) -> tuple[Real, Real] | None:
        first, second = (self.real(item) for item in call.args[:2])
        return None if first is None or second is None else (first, second)

    def align(self, views: Sequence[View]) -> tuple[list[Value], tuple[int, ...] | None]:
        """Return tensors in one common layout, and that layout, taken from a tensor that has one."""
        orders = {view.order for view in views if view.order is not None}
        if len(orders) != 1 or any(len(view.shape) != len(views[0].shape) for view in views):
            return [self.arrange(view) for view in views], None
        (order,) = orders
        back = tuple(int(axis) for axis in np.argsort(order))
        return [self.arrange(view, back) for view in views], order

    def add(
        self, work: Computation | Native, inputs: Sequence[Value], name: str, shape: Sequence[int], dtype: str = "int8"
    ) -> Value:
        output = Value(name, tensor_type(shape, dtype))
        self.append(work, inputs, output)
        return output

    def append(self, work: Computation | Native, inputs: Sequence[Value], output: Value) -> None:
        self.nodes.append(Node(work, tuple(inputs), output))

    def keep(self, variable: Any, call: Any) -> None:
        variables: list[Any] = []

        def note(item: Any) -> None:
            if hash(item) not in {hash(other) for other in variables}:
                variables.append(item)

        tvm_ffi.structural_walk(call, (tvm.ir.Var, note), order="pre")
        known = [item for item in variables if hash(item) in self._values or hash(item) in self._views]

        def build(inputs: Sequence[Any]) -> Any:
            replaced = {hash(item): value for item, value in zip(known, inputs, strict=True)}
            return _substitute(call, replaced)

        inputs = tuple(self.value(item) for item in known)
        self.nodes.append(Node(Native(build, operator_name(call), call), inputs, self._declare(variable)))

    def explain(self, expression: Any, reason: str) -> None:
        """Record why an operator on dequantised tensors stays in float; the first reason counts."""
        pending = [expression]
        while pending:
            item = pending.pop()
            call = self.call(item)
            if call is None or self.real(item) is not None or dtype_of(item.ty) != "float32":
                continue
            key = id(self.value(item))
            if key not in self.reasons:
                self.reasons[key] = reason
                pending.extend(getattr(call, "args", ()))

    def dequantize(self, variable: Any, call: Any) -> None:
        numbers, scale, zero = call.args[:3]
        array, scales, zeros = (self.array(item) for item in (numbers, scale, zero))
        if scales is None or zeros is None:
            return
        dtype = dtype_of(numbers.ty)
        if array is not None and dtype in (*_EIGHT_BITS, "int32"):
            self._constants[hash(variable)] = dequantise(array, scales, zeros, int(call.attrs.axis))
        quantity = quantity_of(scales, zeros, dtype) if dtype in _EIGHT_BITS else None
        if quantity is not None:
            self.set_real(variable, Real(replace(self.view(numbers), unsigned=False), quantity))

    def move_constants(self, variable: Any, call: Any) -> bool:
        """Track the integers of a constant through a data movement; False if it is not a constant."""
        constants = self.constants(call.args[0])
        if constants is None:
            return False
        if call.op.name == "relax.permute_dims":
            self._constants[hash(variable)] = constants.transpose(_axes_of(call))
        else:
            self._constants[hash(variable)] = constants.reshape(shape_of(variable.ty))
        return True

    def array(self, expression: Any) -> npt.NDArray[Any] | None:
        """Return a tensor's elements if known at compile time."""
        if isinstance(expression, tvm.ir.GenericConst):
            array: npt.NDArray[Any] = expression.value.numpy()
            return array
        call = self.call(expression)
        name = operator_name(call)
        if name not in ("relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.multiply"):
            return None
        first = self.array(call.args[0])
        if first is None:
            return None
        if name == "relax.permute_dims":
            return np.asarray(first.transpose(_axes_of(call)))
        if name == "relax.multiply":
            second = self.array(call.args[1])
            return None if second is None else first * second
        reshaped: npt.NDArray[Any] = first.reshape(shape_of(expression.ty))
        return reshaped


def compose_orders(order: tuple[int, ...] | None, axes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Compose two transpositions; None for the identity."""
    if axes is None:
        return order
    both = tuple(axes) if order is None else tuple(order[axis] for axis in axes)
    return None if both == tuple(range(len(both))) else both


def _axes_of(call: Any) -> tuple[int, ...]:
    rank = len(call.args[0].ty.shape)
    axes = call.attrs.axes
    return tuple(range(rank))[::-1] if axes is None else tuple(int(axis) % rank for axis in axes)


def _transposition(shape: Sequence[int], order: tuple[int, ...]) -> Native:
    moved = [axis for axis in order if shape[axis] > 1]
    if moved == sorted(moved):
        target = tuple(shape[axis] for axis in order)
        return Native(lambda inputs: relax.op.reshape(inputs[0], target), "relax.reshape")
    return Native(lambda inputs: relax.op.permute_dims(inputs[0], order), "relax.permute_dims")


def _substitute(expression: Any, replaced: dict[int, Any]) -> Any:
    if hash(expression) in replaced and isinstance(expression, tvm.ir.Var):
        return replaced[hash(expression)]
    if isinstance(expression, tvm.ir.Tuple):
        return tvm.ir.Tuple([_substitute(field, replaced) for field in expression.fields])
    if isinstance(expression, tvm.ir.TupleGetItem):
        return relax.TupleGetItem(_substitute(expression.tuple_value, replaced), int(expression.index))
    if isinstance(expression, tvm.ir.Call):
        arguments = [_substitute(argument, replaced) for argument in expression.args]
        return relax.Call(expression.op, arguments, expression.attrs, expression.ty_args)
    return expression
