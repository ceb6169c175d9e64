# SPDX-License-Identifier: Apache-2.0
"""Recognise ONNX's quantised operators: a float operator between dequantised tensors and a quantisation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from utvm.compiler.kernels import Unfit, fixed_point, kernels, lookup, pooling, quantisation, use
from utvm.compiler.kernels.quantities import Goal, Native, Quantity, Real, Value, View, quantity_of
from utvm.compiler.kernels.reader import Reader, compose_orders
from utvm.compiler.kernels.requantise import concatenate
from utvm.compiler.tvm_types import dtype_of, operator_name, shape_of

# Operators that move elements and compute nothing.
_NAMES = "reshape squeeze expand_dims flatten strided_slice broadcast_to tile repeat flip image.resize2d split"
_MOVEMENTS = tuple(f"relax.{name}" for name in _NAMES.split())


class Recogniser:
    """Turns the bindings of ``main`` into nodes, one after another."""

    def __init__(self, reader: Reader, layers: Mapping[str, use.IntegerLayer]) -> None:
        self._reader = reader
        self._layers = layers
        self._operators: dict[str, list[Callable[..., View | None]]] = {}
        for kernel in kernels():
            if kernel.recognise:
                for name in kernel.relax:
                    self._operators.setdefault(name, []).append(kernel.recognise)

    def bind(self, variable: Any, call: Any) -> None:
        name = operator_name(call)
        layer = self._layers.get(str(call.args[0].global_symbol)) if name == "relax.call_dps_packed" else None
        if layer is not None:
            self._build(variable, call, layer)
            return
        if name == "relax.quantize":
            self._quantize(variable, call)
            return
        if dtype_of(variable.ty) in ("int8", "uint8") and self._integers(variable, call, name):
            return
        self._reader.keep(variable, call)
        if isinstance(call, tvm.ir.TupleGetItem):
            self._pick(variable, call)
        elif name == "relax.dequantize":
            self._reader.dequantize(variable, call)
        elif name:
            self._move(variable, call, name)

    def _build(self, variable: Any, call: Any, layer: use.IntegerLayer) -> None:
        shape, name = shape_of(variable.ty), str(variable.name)
        result = layer.build(self._reader, list(call.args[1].fields), name)
        if result.shape != shape:
            base = result if isinstance(result, Value) else self._reader.arrange(result)
            flat = Native(lambda inputs: relax.op.reshape(inputs[0], shape), "relax.reshape")
            moved = self._reader.add(flat, [base], name, shape, dtype_of(base.type))
            result = moved if isinstance(result, Value) else View(moved)
        if isinstance(result, View) and dtype_of(variable.ty) in ("int8", "uint8"):
            self._reader.set_view(variable, replace(result, unsigned=dtype_of(variable.ty) == "uint8"))
        else:
            value = result if isinstance(result, Value) else self._reader.arrange(result)
            self._reader.set_value(variable, value)

    # Integers that the module computes itself.

    def _integers(self, variable: Any, call: Any, name: str) -> bool:
        if name == "relax.permute_dims":
            self._reader.set_view(variable, _transpose(self._reader.view(call.args[0]), variable, call))
            return True
        if name != "relax.nn.max_pool2d":
            return False
        try:
            view = self._reader.view(call.args[0])
            pooled = pooling.pool(self._reader, call, view, shape_of(variable.ty), str(variable.name))
        except Unfit:
            return False
        self._reader.set_view(variable, replace(pooled, unsigned=view.unsigned))
        return True

    # Float tensors that are only dequantised integers.

    def _move(self, variable: Any, call: Any, name: str) -> None:
        if name in ("relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze"):
            self._reader.move_constants(variable, call)
        if name == "relax.concat":
            self._concatenate_equal(variable, call)
            return
        real = self._reader.real(call.args[0]) if call.args else None
        if real is None:
            return
        if name in ("relax.maximum", "relax.minimum"):
            self._compare(variable, call, real)
            return
        label = str(variable.name)
        if name == "relax.permute_dims":
            self._reader.set_real(variable, replace(real, view=_transpose(real.view, variable, call)))
        elif name == "relax.nn.max_pool2d":
            try:
                view = pooling.pool(self._reader, call, real.view, shape_of(variable.ty), label)
            except Unfit as unfit:
                self._reader.explain(variable, str(unfit))
                return
            self._reader.set_real(variable, replace(real, view=view))
        elif name == "relax.nn.pad":
            self._pad(variable, call, real)
        elif name in _MOVEMENTS and (name != "relax.image.resize2d" or str(call.attrs.method) == "nearest_neighbor"):
            work = Native(lambda inputs: _same_call(call, inputs), name, call)
            self._record_moved(variable, work, [self._reader.arrange(real.view)], real.quantity)

    def _record_moved(self, variable: Any, work: Native, values: Sequence[Value], quantity: Quantity) -> None:
        output = Value(str(variable.name), _with_int8(variable.ty))
        self._reader.append(work, values, output)
        self._reader.set_real(variable, Real(View(output), quantity))

    def _compare(self, variable: Any, call: Any, first: Real) -> None:
        second = self._reader.real(call.args[1])
        if second is None or second.quantity != first.quantity:
            return
        build = {"relax.maximum": relax.op.maximum, "relax.minimum": relax.op.minimum}[str(call.op.name)]
        values = [self._reader.arrange(real.view) for real in (first, second)]
        work = Native(lambda inputs: build(*inputs), str(call.op.name))
        self._record_moved(variable, work, values, first.quantity)

    def _pick(self, variable: Any, call: Any) -> None:
        real = self._reader.real(call.tuple_value)
        if real is not None:
            index = int(call.index)
            work = Native(lambda inputs: relax.TupleGetItem(inputs[0], index), "tuple")
            self._record_moved(variable, work, [real.view.base], real.quantity)

    def _pad(self, variable: Any, call: Any, real: Real) -> None:
        number = real.quantity.zero + float(call.attrs.pad_value) / real.quantity.scale
        if str(call.attrs.pad_mode) != "constant" or number != int(number) or not -128 <= number <= 127:
            return
        widths = [int(width) for width in call.attrs.pad_width]
        order = real.view.order
        if order is not None:
            model = dict(zip(order, zip(widths[::2], widths[1::2], strict=True), strict=True))
            widths = [width for axis in range(len(order)) for width in model[axis]]
        base = real.view.base
        shape = [extent + sum(widths[2 * axis : 2 * axis + 2]) for axis, extent in enumerate(base.shape)]
        padded = relax.op.nn.pad(relax.Var("x", base.type), widths, "constant", float(number))
        output = self._reader.add(
            Native(lambda inputs: _same_call(padded, inputs), "relax.nn.pad", padded), [base], str(variable.name), shape
        )
        self._reader.set_real(variable, replace(real, view=View(output, order)))

    def _concatenate_equal(self, variable: Any, call: Any) -> None:
        reals = [self._reader.real(field) for field in call.args[0].fields]
        known = [real for real in reals if real is not None]
        if len(known) == len(reals) and all(real.quantity == known[0].quantity for real in known):
            views = [real.view for real in known]
            view = concatenate(self._reader, views, int(call.attrs.axis), str(variable.name))
            self._reader.set_real(variable, Real(view, known[0].quantity))

    def _quantize(self, variable: Any, call: Any) -> None:
        scales, zeros = (self._reader.array(item) for item in call.args[1:3])
        dtype = dtype_of(variable.ty)
        target = None
        if scales is not None and zeros is not None and dtype in ("int8", "uint8"):
            target = quantity_of(scales, zeros, dtype)
        if target is None:
            self._reader.keep(variable, call)
            self._reader.explain(call.args[0], "its result has more than one scale, or more than 8 bits")
            return
        try:
            view = self._quantise_expression(call.args[0], target, str(variable.name))
        except Unfit as unfit:
            self._reader.explain(call.args[0], str(unfit))
            origin = self._reader.call(call.args[0])
            is_moved = operator_name(origin) == "relax.permute_dims"
            source = self._reader.value(origin.args[0] if is_moved else call.args[0])
            record = quantisation.Rounding(source.shape or (1,), target.scale, target.zero, "int8", "rintf")
            view = View(self._reader.add(record, [source], str(variable.name), source.shape))
            view = _transpose(view, variable, origin) if is_moved else view
        self._reader.set_view(variable, replace(view, unsigned=dtype == "uint8"))

    def _quantise_expression(self, expression: Any, target: Quantity, name: str) -> View:
        real = self._reader.real(expression)
        if real is not None:
            return lookup.requantize_view(self._reader, real, target, name)
        core, low, high = self._without_limits(expression, target)
        goal = Goal(target, low, high)
        if (real := self._reader.real(core)) is not None:
            table = lookup.requantisation(real.quantity, target, low, high)
            return lookup.look_up(self._reader, real.view, table, "requantize", name)
        view = self._recognise(core, goal, name)
        if view is None:
            view = lookup.tabulate(self._reader, expression, target, name)
        if view is None:
            raise Unfit("no integer form of it is known")
        return view

    def _recognise(self, core: Any, goal: Goal, name: str) -> View | None:
        operator = operator_name(self._reader.call(core))
        if operator == "relax.concat" and not goal.is_limited:
            return self._concatenate(core, goal.quantity, name)
        for recognise in self._operators.get(operator, ()):
            view: View | None = recognise(self._reader, core, goal, name)
            if view is not None:
                return view
        return None

    def _concatenate(self, core: Any, target: Quantity, name: str) -> View | None:
        call = self._reader.call(core)
        reals = [self._reader.real(field) for field in call.args[0].fields]
        views = [lookup.requantize_view(self._reader, real, target, name) for real in reals if real is not None]
        return concatenate(self._reader, views, int(call.attrs.axis), name) if len(views) == len(reals) else None

    def _without_limits(self, expression: Any, target: Quantity) -> tuple[Any, int, int]:
        low, high = -128, 127

        def number(limit: float) -> int:
            return fixed_point.quantized_limit(limit, target.scale, target.zero)

        while True:
            call = self._reader.call(expression)
            operator = operator_name(call)
            if operator == "relax.nn.relu":
                low = max(low, number(0.0))
            elif operator == "relax.nn.relu6":
                low, high = max(low, number(0.0)), min(high, number(6.0))
            elif operator == "relax.clip":
                low = max(low, number(float(call.args[1].value)))
                high = min(high, number(float(call.args[2].value)))
            else:
                return expression, low, high
            expression = call.args[0]


def _transpose(view: View, variable: Any, call: Any) -> View:
    rank = len(variable.ty.shape)
    axes = range(rank)[::-1] if call.attrs.axes is None else [int(axis) % rank for axis in call.attrs.axes]
    return replace(view, order=compose_orders(view.order, axes))


def _same_call(call: Any, inputs: Sequence[Any]) -> Any:
    return relax.Call(call.op, [*inputs, *call.args[len(inputs) :]], call.attrs, call.ty_args)


def _with_int8(kind: Any) -> Any:
    if isinstance(kind, relax.TupleType):
        return relax.TupleType([_with_int8(field) for field in kind.fields])
    return relax.TensorType(shape_of(kind), "int8")
