# SPDX-License-Identifier: Apache-2.0
"""Integer nodes: fuse them, split them with an accelerator, write them as Relax. Results stay bit-identical."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from utvm.compiler import accelerator, library, notes, tvm_types
from utvm.compiler.kernels import addition, cores, makers, records
from utvm.compiler.kernels.functions import OPERATOR
from utvm.compiler.kernels.quantities import Native, Node, Value, live_nodes, tensor_type
from utvm.compiler.target import Target


def fuse_paddings(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """Fuse zero padding into convolutions, and return the nodes that the results need."""
    makers = {id(node.output): node for node in nodes}
    fused: list[Node] = []
    for node in nodes:
        work = node.work
        before = makers.get(id(node.inputs[0])) if node.inputs else None
        if isinstance(work, records.Convolution) and before is not None and len(node.inputs[0].shape) == 4:
            widths = _pad_widths(before, work.input_zero)
            if widths is not None:
                top, left, bottom, right = widths
                _, height, width, channels = before.inputs[0].shape
                padding = (
                    work.padding[0] + top,
                    work.padding[1] + left,
                    work.padding[2] + bottom,
                    work.padding[3] + right,
                )
                work = replace(work, input_shape=(height, width, channels), padding=padding)
                notes.note("fused", f"the padding {before.output.name} into the convolution {node.output.name}")
                fused.append(Node(work, (before.inputs[0], *node.inputs[1:]), node.output))
                continue
        fused.append(node)
    return live_nodes(fused, results)


def _pad_widths(node: Node, zero: int) -> tuple[int, int, int, int] | None:
    if not isinstance(node.work, Native) or node.work.operator != "relax.nn.pad":
        return None
    attributes = node.work.call.attrs
    widths = [int(width) for width in attributes.pad_width]
    if str(attributes.pad_mode) != "constant" or float(attributes.pad_value) != zero or any(widths[:2] + widths[6:]):
        return None
    _, _, top, bottom, left, right, _, _ = widths
    return top, left, bottom, right


def fuse_additions(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """Fuse an addition into the convolution that is the only one to be read by it."""
    uses = Counter(id(value) for node in nodes for value in node.inputs)
    uses.update(id(value) for value in results)
    makers = {id(node.output): (number, node) for number, node in enumerate(nodes)}
    fused = list(nodes)
    absorbed: set[int] = set()
    for number, node in enumerate(nodes):
        work = node.work
        if (
            not isinstance(work, addition.Addition)
            or work.subtract
            or work.dtype != "int8"
            or work.shapes[0] != work.shapes[1]
        ):
            continue
        candidates = []
        for side, value in enumerate(node.inputs):
            maker = makers.get(id(value))
            if maker is not None and isinstance(maker[1].work, records.Convolution) and uses[id(value)] == 1:
                candidates.append((maker[0], side, maker[1]))
        if not candidates:
            continue
        # The last convolution: the other operand is computed by then.
        place, side, convolution = max(candidates, key=lambda item: item[0])
        record = convolution.work
        other = node.inputs[1 - side]
        if not isinstance(record, records.Convolution) or record.residual is not None or len(other.shape) != 4:
            continue
        if id(other) in makers and makers[id(other)][0] > place:
            continue
        residual = records.Residual(
            work.zeros[side],
            work.zeros[1 - side],
            work.factors[side],
            work.factors[1 - side],
            work.output,
            work.output_zero,
            work.low,
            work.high,
        )
        notes.note("fused", f"the addition {node.output.name} into the convolution {convolution.output.name}")
        fused[place] = Node(replace(record, residual=residual), (*convolution.inputs, other), node.output)
        makers[id(node.output)] = (place, fused[place])
        absorbed.add(number)
    return [node for number, node in enumerate(fused) if number not in absorbed]


_CYCLES_A_BYTE = 8.0  # Per byte that a CPU copies; for decisions only, not to be reported as measured.


def divide(
    nodes: Sequence[Node], assistant: accelerator.Assistant, target: Target, name_of: Callable[[Value], str]
) -> tuple[list[Node], tuple[library.Decision, ...]]:
    divided: list[Node] = []
    decisions = []
    for node in nodes:
        if not isinstance(node.work, records.Convolution):
            divided.append(node)
            continue
        cpu, name = cores.estimated_cycles(node.work, target), name_of(node.output)
        try:
            offer = assistant.offer(node.work)
        except accelerator.Refused as refused:
            decisions.append(library.Decision(name, "CPU", str(refused), cpu))
            divided.append(node)
            continue
        there = round(offer.cycles * assistant.cpu_cycles + offer.arranged_bytes * _CYCLES_A_BYTE)
        offload = assistant.everything or there < cpu
        estimated = f"it is estimated to be faster {'there' if offload else 'on the CPU'}"
        reason = "accelerator=all requests it" if assistant.everything else estimated
        where = assistant.identity if offload else "CPU"
        decisions.append(library.Decision(name, where, reason, cpu, there, offer.moved_bytes))
        divided += _in_parts(node, offer, name) if offload else [node]
    return divided, tuple(decisions)


def _in_parts(node: Node, offer: accelerator.Offer, name: str) -> list[Node]:
    tensors = list(node.inputs)
    parts = offer.parts()
    maker = []
    for number, part in enumerate(parts):
        output = node.output
        if number < len(parts) - 1:
            kind = part.operator.function.params[-1]
            shape = [int(extent) for extent in kind.ty.shape]
            output = Value(f"{name} ({number + 1})", tensor_type(shape, tvm_types.element_type(kind)))
        maker.append(Node(records.Ready(part.operator), tuple(tensors[read] for read in part.reads), output))
        tensors.append(output)
    return maker


def to_module(
    parameters: Sequence[Any],
    values: Sequence[Value],
    nodes: Sequence[Node],
    result: Any,
    target: Target | None,
    functions: Mapping[Any, Any],
    name_of: Callable[[Value], str],
) -> tuple[Any, dict[str, records.Computation]]:
    """Return the module, and the computations of its variables by their names."""
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
    return module, writer.layers


class _Writer:
    def __init__(self, builder: Any, target: Target | None, name_of: Callable[[Value], str]) -> None:
        self._builder = builder
        self._name = name_of
        self._target = target
        self._makers = makers()
        self.expressions: dict[int, Any] = {}
        self.layers: dict[str, records.Computation] = {}
        self._unshaped: dict[int, Any] = {}

    def write(self, node: Node) -> None:
        inputs = [self._expression(value) for value in node.inputs]
        if isinstance(node.work, Native):
            variable = self._builder.emit(node.work.build(inputs), self._name(node.output))
            # A reshaped constant has no inputs.
            if node.work.operator == "relax.reshape" and inputs:
                self._unshaped[hash(variable)] = self._unshaped.get(hash(inputs[0]), inputs[0])
        else:
            variable = self._call(node.work, inputs, node.output)
        self.expressions[id(node.output)] = variable

    def _operator(self, record: records.Computation) -> records.Operator:
        if isinstance(record, records.Ready):
            return record.operator
        operator: records.Operator = self._makers[type(record)](record, self._target)
        return operator

    def nest(self, item: Any) -> Any:
        if isinstance(item, tuple):
            return tvm.ir.Tuple([self.nest(field) for field in item])
        return self._expression(item)

    def _expression(self, value: Value) -> Any:
        if value.constant is not None:
            return relax.const(value.constant, str(value.constant.dtype))
        return self.expressions[id(value)]

    def _call(self, work: records.Computation, inputs: Sequence[Any], result: Value) -> Any:
        operator = self._operator(work)
        parameters = [tvm_types.shape_of(parameter.ty) for parameter in operator.function.params]
        name = str(operator.function.attrs[OPERATOR])
        function = operator.function.without_attr("global_symbol")  # The module names the function.
        variable = self._builder.add_func(function.with_attr("tirx.noalias", True), name)
        arguments = [self._reshape(item, shape) for item, shape in zip(inputs, parameters[: len(inputs)], strict=True)]
        constants = [relax.const(array, str(array.dtype)) for array in operator.constants]
        output = operator.function.params[-1].ty
        kind = tensor_type(tvm_types.shape_of(output), tvm_types.dtype_of(output))
        call = self._builder.emit(relax.call_tir(variable, [*arguments, *constants], kind), self._name(result))
        self.layers[str(call.name)] = work
        return self._reshape(call, result.shape)

    def _reshape(self, item: Any, shape: tuple[int, ...]) -> Any:
        """Reshape a tensor; in a chain of reshapes, emit only the last one."""
        if tvm_types.shape_of(item.ty) == shape:
            return item
        origin = self._unshaped.get(hash(item), item)
        if tvm_types.shape_of(origin.ty) == shape:
            return origin
        variable = self._builder.emit(relax.op.reshape(origin, shape))
        self._unshaped[hash(variable)] = origin
        return variable
