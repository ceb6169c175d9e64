# SPDX-License-Identifier: Apache-2.0
"""A model between recognition and Relax: nodes, which are records of integer operators or Relax calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax, tirx

from utvm.compiler.int8_operator import int8_operators
from utvm.compiler.integer.records import Computation, Operator, Ready
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import shape_of


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, or a tuple of tensors, told apart by identity.

    Attributes:
        name: what the module called it.
        type: Relax's.
        constant: its elements, where they are known.
    """

    name: str
    type: Any
    constant: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a tensor."""
        return tuple(int(extent) for extent in self.type.shape)


@dataclass(frozen=True, eq=False)
class Native:
    """A computation that Relax's own operators do.

    Attributes:
        build: makes the expression of the inputs' expressions.
        operator: Relax's name of it.
        call: the module's call, where there is one; its arguments are not those of the node.
    """

    build: Callable[[Sequence[Any]], Any]
    operator: str
    call: Any = None


@dataclass(frozen=True, eq=False)
class Node:
    """One computation."""

    work: Computation | Native
    inputs: tuple[Value, ...]
    output: Value


def tensor_type(shape: Sequence[int], dtype: str) -> Any:
    """Return Relax's type of a tensor."""
    return relax.TensorType(tuple(shape), dtype)


def needed(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """Return the nodes that results depend on, in their order."""
    wanted = {id(value) for value in results}
    kept: list[Node] = []
    for node in reversed(nodes):
        if id(node.output) in wanted:
            kept.append(node)
            wanted.update(id(value) for value in node.inputs)
    return kept[::-1]


def to_module(
    parameters: Sequence[Any],
    values: Sequence[Value],
    nodes: Sequence[Node],
    result: Any,
    target: Target,
    functions: Mapping[Any, Any],
    name_of: Callable[[Value], str],
) -> Any:
    """Return a Relax module that computes the nodes.

    Args:
        parameters: the variables of ``main``.
        values: those of the parameters, in the same order.
        result: a value, or a tuple of results.
        functions: what the nodes' own calls call, by variable.
        name_of: what a value is called.
    """
    builder = relax.BlockBuilder()
    writer = _Writer(builder, target, name_of)
    for value, parameter in zip(values, parameters, strict=True):
        writer.expressions[id(value)] = parameter
    with builder.function("main", list(parameters)):
        with builder.dataflow():
            for node in nodes:
                writer.write(node)
            output = builder.emit_output(writer.nested(result))
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

    def __init__(self, builder: Any, target: Target, name_of: Callable[[Value], str]) -> None:
        self._builder = builder
        self._name = name_of
        self._target = target
        self._makers = {operator.record: operator.make for operator in int8_operators()}
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
            written = self._operator(self._made(node.work), inputs, node.output)
        self.expressions[id(node.output)] = written

    def _made(self, record: Computation) -> Operator:
        if isinstance(record, Ready):
            return record.operator
        made: Operator = self._makers[type(record)](record, self._target)
        return made

    def nested(self, item: Any) -> Any:
        if isinstance(item, tuple):
            return tvm.ir.Tuple([self.nested(each) for each in item])
        return self._expression(item)

    def _expression(self, value: Value) -> Any:
        if value.constant is not None:
            return relax.const(value.constant, str(value.constant.dtype))
        return self.expressions[id(value)]

    def _operator(self, operator: Operator, inputs: Sequence[Any], result: Value) -> Any:
        parameters = [shape_of(parameter.ty) for parameter in operator.function.params]
        name = str(operator.function.attrs["utvm.operator"])
        function = self._builder.add_func(
            operator.function.with_attr("tirx.noalias", tirx.const(True, "bool")), name
        )
        arguments = [
            self._reshaped(item, wanted) for item, wanted in zip(inputs, parameters[: len(inputs)], strict=True)
        ]
        constants = [relax.const(array, str(array.dtype)) for array in operator.constants]
        output = operator.function.params[-1].ty
        kind = tensor_type(shape_of(output), str(getattr(output.dtype, "dtype", output.dtype)))
        called = self._builder.emit(relax.call_tir(function, [*arguments, *constants], kind), self._name(result))
        return self._reshaped(called, result.shape)

    def _reshaped(self, item: Any, shape: tuple[int, ...]) -> Any:
        """Return a tensor in another shape; a chain of shapes is only its last one."""
        if shape_of(item.ty) == shape:
            return item
        origin = self._unshaped.get(hash(item), item)
        if shape_of(origin.ty) == shape:
            return origin
        written = self._builder.emit(relax.op.reshape(origin, shape))
        self._unshaped[hash(written)] = origin
        return written
