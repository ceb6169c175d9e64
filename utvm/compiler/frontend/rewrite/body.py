# SPDX-License-Identifier: Apache-2.0
"""ONNX's own definitions of operators by other operators, and putting them in a node's place."""

from collections.abc import Mapping, Sequence

import onnx
import onnx.defs


def function_body(
    node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]
) -> onnx.FunctionProto | None:
    """ONNX's definition of a node's operator, its attributes filled in; None where there is none."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body.ParseFromString(schema.get_function_with_opset_version(_write(schema.function_opset_versions, opset)))
    elif schema.has_context_dependent_function:
        written = _write(schema.context_dependent_function_opset_versions, opset)
        # A body is written for the types of a node's inputs; those of inputs left out are empty.
        kinds = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        text = schema.get_context_dependent_function_with_opset_version(written, node.SerializeToString(), kinds)
        body.ParseFromString(text)
    if not body.node:
        return None
    given = {attribute.name: attribute for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            given[name] = attribute.default_value
    for item in body.attribute_proto:
        given.setdefault(item.name, item)
    for item in body.node:
        _fill_in(item, given)
    return body


def _write(versions: Sequence[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=min(versions))


def _fill_in(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            kept.append(value)
            continue
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _fill_in(inner, given)
        kept.append(attribute)
    kept = [_copy(item) for item in kept]
    del node.attribute[:]
    node.attribute.extend(kept)


def _copy(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    return copy


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A node in which values are called otherwise, also where its subgraphs read them."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for attribute in copy.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            _rename_captured(attribute.g, names)
    return copy


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    captured = {name: new for name, new in names.items() if name not in own}
    for node in graph.node:
        node.CopyFrom(rename(node, captured))
    for value in graph.output:
        value.name = captured.get(value.name, value.name)
