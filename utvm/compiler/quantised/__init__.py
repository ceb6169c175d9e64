# SPDX-License-Identifier: Apache-2.0
"""Quantised models in integers: TensorFlow Lite's layers and ONNX's QDQ form as nodes of integer operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import tvm

from utvm.compiler import accelerator, library, tvm_types
from utvm.compiler.kernels import quantities, records, use
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.quantised import constants, recognise
from utvm.compiler.quantised.nodes import divide, fuse_additions, fuse_paddings, to_module
from utvm.compiler.target import Target

_BORDERS = ("relax.quantize", "relax.dequantize")


@dataclass(frozen=True)
class Integerized:
    """A module after the pass, operators left in float, channels not computed, decisions, and variables' layers."""

    module: Any
    leftovers: tuple[library.Leftover, ...]
    removals: tuple[library.Removal, ...] = ()
    decisions: tuple[library.Decision, ...] = ()
    layers: Mapping[str, records.Computation] = field(default_factory=dict)


def integerize(
    module: Any,
    target: Target | None,
    assistant: accelerator.Assistant | None = None,
    layers: Mapping[str, use.IntegerLayer] = MappingProxyType({}),
) -> Integerized:
    """Turn quantised operators into integer ones, bit-exact with TensorFlow Lite Micro."""
    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    if not layers and not any(
        tvm_types.operator_name(binding.value) in _BORDERS or tvm_types.dtype_of(binding.var.ty) == "int8"
        for binding in bindings
    ):
        return Integerized(module, ())
    reader = Reader(main)
    recogniser = recognise.Recogniser(reader, layers)
    for binding in bindings:
        recogniser.bind(binding.var, binding.value)
    result = _values_of(reader, main.body.body)
    nodes = fuse_paddings(reader.nodes, _flat(result))
    nodes, removals = constants.remove_constant_channels(nodes, _flat(result), reader.name_of)
    nodes = fuse_additions(nodes, _flat(result))
    leftovers = _leftovers(nodes, reader)
    nodes, decisions = divide(nodes, assistant, target, reader.name_of) if assistant and target else (nodes, ())
    functions = {variable: function for variable, function in module.functions.items() if not function.same_as(main)}
    changed, computations = to_module(main.params, reader.parameters, nodes, result, target, functions, reader.name_of)
    return Integerized(changed, leftovers, removals, decisions, computations)


def _values_of(reader: Reader, expression: Any) -> Any:
    if isinstance(expression, tvm.ir.Tuple):
        return tuple(_values_of(reader, field) for field in expression.fields)
    return reader.value(expression)


def _flat(result: Any) -> list[quantities.Value]:
    return [value for item in result for value in _flat(item)] if isinstance(result, tuple) else [result]


def _leftovers(nodes: Sequence[quantities.Node], reader: Reader) -> tuple[library.Leftover, ...]:
    """Return operators that compute in float on dequantised tensors."""
    touched: set[int] = set()
    leftovers: list[library.Leftover] = []
    for node in nodes:
        if not isinstance(node.work, quantities.Native):
            continue
        operator = node.work.operator
        if operator == "relax.dequantize":
            touched.add(id(node.output))
        elif any(id(value) in touched for value in node.inputs) and tvm_types.dtype_of(node.output.type) == "float32":
            touched.add(id(node.output))
            if not operator:
                continue
            reason = reader.reasons.get(id(node.output), "its result is not quantised")
            leftovers.append(library.Leftover(operator.removeprefix("relax."), reader.name_of(node.output), reason))
    return tuple(leftovers)
