# SPDX-License-Identifier: Apache-2.0
"""Rewrite ONNX models to operators TVM's importer converts correctly, by tables of *rules* or ONNX's bodies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from utvm.compiler.frontend.rewrite import elementwise, foreign, indices, linear, normalisation, recurrent
from utvm.compiler.frontend.rewrite.graph import MICROSOFT, STANDARD, Rule, RuleGraph

_FAMILIES = (elementwise, indices, linear, normalisation, recurrent)
_RULES: dict[str, Rule] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}
_FOREIGN = {MICROSOFT: foreign.MICROSOFT_RULES, "ai.onnx.ml": foreign.LEARNED}


@dataclass(frozen=True)
class Rewritten:
    """A model in fewer operators."""

    model: onnx.ModelProto
    types: Mapping[str, onnx.TypeProto]
    reasons: tuple[str, ...]


def rewrite_model(proto: onnx.ModelProto, known: Iterable[str]) -> Rewritten:
    opset = next(item.version for item in proto.opset_import if item.domain in STANDARD)
    graph = RuleGraph(opset, _RULES, _FOREIGN, frozenset(known))
    for value in proto.graph.input:
        graph.types[value.name] = value.type
    for tensor in proto.graph.initializer:
        graph.constants[tensor.name] = tensor
        graph.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    for node in proto.graph.node:
        graph.add(node, opset)
    if not graph.reasons and not graph.changed:
        return Rewritten(proto, graph.types, ())
    for value in proto.graph.output:
        if graph.name(value.name) != value.name:
            graph.nodes.append(helper.make_node("Identity", [graph.name(value.name)], [value.name]))
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    del model.graph.node[:]
    model.graph.node.extend(_needed_nodes(graph.nodes, {value.name for value in proto.graph.output}))
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(tensor for name, tensor in graph.added.items() if name in read)
    # Results of refused nodes become inputs, so that the nodes after them are checked, too.
    refused = [(name, graph.types[name]) for name in graph.refused if name in graph.types]
    model.graph.input.extend(helper.make_value_info(name, kind) for name, kind in refused)
    return Rewritten(model, graph.types, tuple(graph.reasons))


def _needed_nodes(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    needed = []
    for node in reversed(nodes):
        if names.intersection(node.output):
            names.update(node.input)
            needed.append(node)
    return needed[::-1]
