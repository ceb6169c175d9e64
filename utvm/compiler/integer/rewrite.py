# SPDX-License-Identifier: Apache-2.0
"""The Relax pass that turns quantised operators into integer ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from utvm.compiler.accelerator import Assistant
from utvm.compiler.integer.division import divide
from utvm.compiler.integer.fuse import fuse
from utvm.compiler.integer.nodes import Native, Node, Value, needed, to_module
from utvm.compiler.integer.reader import Reader, operator_name
from utvm.compiler.integer.recognize import Recognizer
from utvm.compiler.library import Decision, Leftover
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import dtype_of

ROUNDING = "utvm.rounding"
"""Attribute of ``main``: the C function that rounds floats to be quantised, ``roundf`` or ``rintf`` (default)."""

_BORDERS = ("relax.quantize", "relax.dequantize")


@dataclass(frozen=True)
class Integerized:
    """A module after the pass, what it could not turn into integers, and what it gave to an accelerator."""

    module: Any
    leftovers: tuple[Leftover, ...]
    decisions: tuple[Decision, ...] = ()


def integerize(module: Any, target: Target, assistant: Assistant | None = None) -> Integerized:
    """Turn quantised operators into integer ones.

    What lies between tensors that are dequantised and a quantisation becomes an operator in integers, bit for bit
    that of TensorFlow Lite Micro's reference kernels. A module without int8 tensors is returned as it is.

    Args:
        module: a Relax module, not legalized yet.
        target: what kernels are chosen for.
        assistant: an accelerator that takes a part of them.
    """
    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    if not any(
        operator_name(binding.value) in _BORDERS or dtype_of(binding.var.ty) == "int8" for binding in bindings
    ):
        return Integerized(module, ())
    reader = Reader(main)
    attributes = main.attrs
    recognizer = Recognizer(
        reader, str(attributes[ROUNDING]) if attributes and ROUNDING in attributes else "rintf"
    )
    for binding in bindings:
        recognizer.bind(binding.var, binding.value)
    result = _values_of(reader, main.body.body)
    nodes = needed(reader.nodes, _flat(result))
    nodes = fuse(nodes, _flat(result))
    leftovers = _leftovers(nodes, recognizer.reasons, reader)
    nodes, decisions = divide(nodes, assistant, target, reader.name_of) if assistant else (nodes, ())
    functions = {
        variable: function for variable, function in module.functions.items() if not function.same_as(main)
    }
    changed = to_module(main.params, reader.parameters, nodes, result, target, functions, reader.name_of)
    return Integerized(changed, leftovers, decisions)


def _values_of(reader: Reader, expression: Any) -> Any:
    if isinstance(expression, tvm.ir.Tuple):
        return tuple(_values_of(reader, field) for field in expression.fields)
    return reader.value(expression)


def _flat(result: Any) -> list[Value]:
    return [value for item in result for value in _flat(item)] if isinstance(result, tuple) else [result]


def _leftovers(nodes: Sequence[Node], reasons: dict[int, str], reader: Reader) -> tuple[Leftover, ...]:
    """Return the operators that compute floats of dequantised numbers."""
    touched: set[int] = set()
    found: list[Leftover] = []
    for node in nodes:
        if not isinstance(node.work, Native):
            continue
        operator = node.work.operator
        if operator == "relax.dequantize":
            touched.add(id(node.output))
        elif any(id(value) in touched for value in node.inputs) and dtype_of(node.output.type) == "float32":
            touched.add(id(node.output))
            if not operator:
                continue
            reason = reasons.get(id(node.output), "its result is not quantised")
            found.append(Leftover(operator.removeprefix("relax."), reader.name_of(node.output), reason))
    return tuple(found)
