# SPDX-License-Identifier: Apache-2.0
"""Fold constants that ONNX's evaluator and ONNX Runtime compute alike; expand operators by function bodies."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from utvm.compiler.read.evaluators import definition, runtime

_MAX_ELEMENTS = 1 << 20
"""Larger results are computed at run time: no shape depends on them, and storing them costs more."""

_SMALL = 1 << 10

# Quantisation operators are kept because they mark a quantised model; random ones differ in each run.
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_NEVER = frozenset((*_RANDOM, "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear", "If", "Loop", "Scan"))
_INTEGERS = frozenset((onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.INT64))


class KnownValues(Protocol):
    """Known values of a graph."""

    types: dict[str, onnx.TypeProto]

    def shape_or_none(self, value: str) -> tuple[int, ...] | None:
        """Return the shape of a value, None if unknown."""


def worth_folding(node: onnx.NodeProto, graph: KnownValues) -> bool:
    """True if a node with a converter is folded anyway: shapes, not arithmetic on weights."""
    if node.op_type in ("Shape", "Size", "NonMaxSuppression", "NonZero", "Unique"):
        return True
    if node.op_type == "Constant":
        return not any(attribute.name == "value" for attribute in node.attribute)
    kinds = [graph.types.get(name) for name in node.output if name]
    return all(
        kind is not None
        and kind.tensor_type.elem_type in _INTEGERS
        and math.prod(graph.shape_or_none(name) or (_SMALL + 1,)) <= _SMALL
        for name, kind in zip(node.output, kinds, strict=False)
    )


def compute_node(
    node: onnx.NodeProto,
    opset: int,
    constant: Callable[[str], onnx.TensorProto | None],
    types: Mapping[str, onnx.TypeProto],
) -> list[onnx.TensorProto] | None:
    """Compute a node from constants; None if that is not possible."""
    if node.op_type in _NEVER:
        return None
    if node.op_type in ("Shape", "Size"):
        return _shape(node, types)
    feeds = {}
    for name in node.input:
        if not name:
            continue
        tensor = constant(name)
        if tensor is None:
            return None
        feeds[name] = tensor
    if any(math.prod(tensor.dims) > _MAX_ELEMENTS for tensor in feeds.values()) or _grows(node, types):
        return None
    if node.op_type == "Cast":
        (array,), (target,) = (
            map(numpy_helper.to_array, feeds.values()),
            [i.i for i in node.attribute if i.name == "to"],
        )
        dtype = helper.tensor_dtype_to_np_dtype(target)
        if array.dtype.kind == "f" and dtype.kind in "iu":
            return [numpy_helper.from_array(saturate(array, dtype))]
    return _evaluate(node, opset, feeds)


def saturate(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Cast floats to the nearest integers of a type, and NaN to 0, as a library does; numpy's is undefined."""
    info = np.iinfo(np.dtype(dtype))
    low, high = array <= float(info.min), array >= float(info.max)
    inside = np.where(np.isnan(array) | low | high, 0, array).astype(info.dtype)
    return np.asarray(np.where(low, info.min, np.where(high, info.max, inside)).astype(info.dtype))


def _grows(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> bool:
    sizes = [
        math.prod(size.dim_value for size in types[name].tensor_type.shape.dim) for name in node.output if name in types
    ]
    return any(size > _MAX_ELEMENTS for size in sizes)


def _shape(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> list[onnx.TensorProto] | None:
    kind = types.get(node.input[0])
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    extents = [extent.dim_value if extent.HasField("dim_value") else -1 for extent in kind.tensor_type.shape.dim]
    if -1 in extents:
        return None
    if node.op_type == "Size":
        return [numpy_helper.from_array(np.array(math.prod(extents), np.int64))]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    part = extents[slice(bounds.get("start", 0), bounds.get("end", len(extents)))]
    return [numpy_helper.from_array(np.array(part, np.int64))]


def _evaluate(node: onnx.NodeProto, opset: int, feeds: Mapping[str, onnx.TensorProto]) -> list[onnx.TensorProto] | None:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    graph = helper.make_graph(
        [copy],
        "folded",
        [helper.make_tensor_value_info(name, tensor.data_type, None) for name, tensor in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    arrays = {name: numpy_helper.to_array(tensor) for name, tensor in feeds.items()}
    try:
        with np.errstate(all="ignore"):
            results = definition(model).run(None, arrays)
            if not _is_confirmed(model, arrays, results):
                return None
        tensors = iter([numpy_helper.from_array(np.asarray(result)) for result in results])
    except Exception:  # The evaluator raises anything numpy does; a failure means not constant.
        return None
    return [next(tensors) if name else onnx.TensorProto() for name in node.output]


def _is_confirmed(model: onnx.ModelProto, arrays: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """False if ONNX Runtime's results differ; the node is then computed at run time."""
    try:
        others = runtime(model).run(None, arrays)
    except Exception:  # Raised for operators that ONNX Runtime does not implement.
        return True
    return all(np.allclose(a, b, 1e-4, 1e-6, equal_nan=True) for a, b in zip(results, others, strict=True))


def function_body(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return ONNX's function body of a node's operator with its attributes set; None if there is none."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body.ParseFromString(schema.get_function_with_opset_version(_write(schema.function_opset_versions, opset)))
    elif schema.has_context_dependent_function:
        version = _write(schema.context_dependent_function_opset_versions, opset)
        # A body depends on the types of a node's inputs; omitted inputs have an empty type.
        kinds = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), kinds)
        body.ParseFromString(text)
    if not body.node:
        return None
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in attributes and attribute.default_value.name:
            attributes[name] = attribute.default_value
    for item in body.attribute_proto:
        attributes.setdefault(item.name, item)
    for item in body.node:
        _fill_in(item, attributes)
    return body


def _write(versions: Sequence[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=min(versions))


def _fill_in(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    results = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in attributes:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(attributes[attribute.ref_attr_name])
            value.name = attribute.name
            results.append(value)
            continue
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _fill_in(inner, attributes)
        results.append(attribute)
    results = [_copy(item) for item in results]
    del node.attribute[:]
    node.attribute.extend(results)


def _copy(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    return copy


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for attribute in copy.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            _rename_outer_names(attribute.g, names)
    return copy


def _rename_outer_names(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    captured = {name: new for name, new in names.items() if name not in own}
    for node in graph.node:
        node.CopyFrom(rename(node, captured))
    for value in graph.output:
        value.name = captured.get(value.name, value.name)
