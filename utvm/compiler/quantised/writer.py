# SPDX-License-Identifier: Apache-2.0
"""From nodes to a Relax module of calls of TIRx functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from utvm.compiler.kernels import kernels
from utvm.compiler.kernels.quantities import Native, Node, Value, tensor_type
from utvm.compiler.kernels.records import Computation, Operator, Ready
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import dtype_of, shape_of


def to_module(
    parameters: Sequence[Any],
    values: Sequence[Value],
    nodes: Sequence[Node],
    result: Any,
    target: Target | None,
    functions: Mapping[Any, Any],
    name_of: Callable[[Value], str],
) -> Any:
    """A Relax module that computes the nodes.

    Args:
        parameters: the variables of ``main``.
        values: those of the parameters, in the same order.
        result: a value, or a tuple of results.
        target: what kernels are chosen for; None for TVM's own backends.
        functions: the functions that the nodes' own calls call, by variable.
        name_of: the name of a value.
    """
    builder = relax.BlockBuilder()
    writer = _Writer(builder, target, name_of)
    for value, parameter in zip(values, parameters, strict=True):
        writer.expressions[id(value)] = parameter
    with builder.function("main", list(parameters)):
        with builder.dataflow():
            for node in nodes:
                writer.write(node)
            output = builder.emit_output(writer.nest(result))
        builder.emit_func_output(output)
    module = builder.get()
    for variable, function in functions.items():
        module.update_func(variable, function)
    return module


class _Writer:
    """Writes nodes as Relax.

    Attributes:
        expressions: of the values so far.
    """

    def __init__(self, builder: Any, target: Target | None, name_of: Callable[[Value], str]) -> None:
        self._builder = builder
        self._name = name_of
        self._target = target
        self._makers = {record: make for kernel in kernels() for record, make in kernel.makers.items()}
        self.expressions: dict[int, Any] = {}
        self._unshaped: dict[int, Any] = {}

    def write(self, node: Node) -> None:
        inputs = [self._expression(value) for value in node.inputs]
        if isinstance(node.work, Native):
            written = self._builder.emit(node.work.build(inputs), self._name(node.output))
            # One of a constant has no inputs.
            if node.work.operator == "relax.reshape" and inputs:
                self._unshaped[hash(written)] = self._unshaped.get(hash(inputs[0]), inputs[0])
        else:
            written = self._call(self._operator(node.work), inputs, node.output)
        self.expressions[id(node.output)] = written

    def _operator(self, record: Computation) -> Operator:
        if isinstance(record, Ready):
            return record.operator
        operator: Operator = self._makers[type(record)](record, self._target)
        return operator

    def nest(self, item: Any) -> Any:
        if isinstance(item, tuple):
            return tvm.ir.Tuple([self.nest(field) for field in item])
        return self._expression(item)

    def _expression(self, value: Value) -> Any:
        if value.constant is not None:
            return relax.const(value.constant, str(value.constant.dtype))
        return self.expressions[id(value)]

    def _call(self, operator: Operator, inputs: Sequence[Any], result: Value) -> Any:
        parameters = [shape_of(parameter.ty) for parameter in operator.function.params]
        name = str(operator.function.attrs["utvm.operator"])
        function = operator.function.without_attr("global_symbol")  # The module names it.
        variable = self._builder.add_func(function.with_attr("tirx.noalias", True), name)
        arguments = [
            self._reshape(item, wanted) for item, wanted in zip(inputs, parameters[: len(inputs)], strict=True)
        ]
        constants = [relax.const(array, str(array.dtype)) for array in operator.constants]
        output = operator.function.params[-1].ty
        kind = tensor_type(shape_of(output), dtype_of(output))
        call = self._builder.emit(relax.call_tir(variable, [*arguments, *constants], kind), self._name(result))
        return self._reshape(call, result.shape)

    def _reshape(self, item: Any, shape: tuple[int, ...]) -> Any:
        """A tensor in another shape; of a chain of shapes, only the last one."""
        if shape_of(item.ty) == shape:
            return item
        origin = self._unshaped.get(hash(item), item)
        if shape_of(origin.ty) == shape:
            return origin
        written = self._builder.emit(relax.op.reshape(origin, shape))
        self._unshaped[hash(written)] = origin
        return written
