# SPDX-License-Identifier: Apache-2.0
"""Name the node or tensor of a model that breaks ONNX's rules, whose own messages are for its developers."""

from collections import Counter

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
from onnx import helper


def broken_rule(proto: onnx.ModelProto) -> str:
    """Return the first rule that a refused model breaks, and where; empty if no single part breaks one."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    versions = {item.domain: item.version for item in proto.opset_import}
    context.opset_imports = versions
    graph = proto.graph
    for kind, tensors in (("constant", graph.initializer), ("input", graph.input), ("output", graph.output)):
        check = onnx.checker.check_tensor if kind == "constant" else onnx.checker.check_value_info
        for tensor in tensors:
            if not _passes(check, tensor, context):
                return f"{kind} {tensor.name!r}: is incomplete or damaged"
    names = Counter(name for node in graph.node for name in node.output if name)
    names.update(value.name for value in graph.input)
    repeated = next((name for name, count in names.items() if count > 1), None)
    if repeated is not None:
        return f"two nodes produce {repeated!r}"
    types = {value.name: value.type for value in graph.input}
    types |= {item.name: helper.make_tensor_type_proto(item.data_type, item.dims) for item in graph.initializer}
    stored = {item.name: item for item in graph.initializer}
    declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if not _passes(onnx.checker.check_node, node, context):
            version = versions.get(node.domain, versions.get("ai.onnx", 1))
            return f"{place(node)}: does not have the inputs, outputs and attributes of operator set {version}"
        reason = _wrong_types(node, types, stored, declared, versions)
        if reason:
            return f"{place(node)}: {reason}"
    return ""


def _wrong_types(
    node: onnx.NodeProto,
    types: dict[str, onnx.TypeProto],
    stored: dict[str, onnx.TensorProto],
    declared: dict[str, onnx.TypeProto],
    versions: dict[str, int],
) -> str:
    version = versions.get(node.domain, 1)
    known = {name: types[name] for name in node.input if name in types}
    if not onnx.defs.has(node.op_type, version, node.domain) or len(known) < len(set(filter(None, node.input))):
        return ""
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    data = {name: stored[name] for name in node.input if name in stored}
    imports = [helper.make_opsetid(domain, number) for domain, number in versions.items()]
    try:
        results = onnx.shape_inference.infer_node_outputs(schema, node, known, data, None, imports)
    except Exception:  # onnx raises several kinds here, some of them only bound in C++
        return f"does not take {', '.join(_describe_type(known[name]) for name in node.input if name)}"
    for name, kind in results.items():
        wanted = declared.get(name)
        types[name] = kind
        if wanted is not None and wanted.tensor_type.elem_type not in (0, kind.tensor_type.elem_type):
            return f"makes {_describe_type(kind)}, where the file declares {_describe_type(wanted)} for {name!r}"
    return ""


def _describe_type(kind: onnx.TypeProto) -> str:
    tensor = kind.tensor_type
    if kind.WhichOneof("value") != "tensor_type" or tensor.elem_type not in onnx.TensorProto.DataType.values():
        return "a value that is not a tensor"
    name = str(onnx.TensorProto.DataType.Name(tensor.elem_type)).lower()
    extents = [
        extent.dim_value if extent.HasField("dim_value") else extent.dim_param or "?" for extent in tensor.shape.dim
    ]
    text = ", ".join(map(str, extents))
    return f"{ {'float': 'float32', 'double': 'float64'}.get(name, name) }[{text}]"


def _passes(check: object, item: object, context: object) -> bool:
    try:
        check(item, context)  # type: ignore[operator]
    except Exception:  # onnx raises several kinds here, some of them only bound in C++
        return False
    return True


def place(node: onnx.NodeProto) -> str:
    name = node.name or (node.output[0] if node.output else "without a name")
    return f"node {name!r} ({node.op_type})"
