# SPDX-License-Identifier: Apache-2.0
"""Put an ONNX model in order before it is checked: functions inlined, nodes sorted, types as C has them."""

import graphlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.inliner
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

from utvm.compiler.library import ELEMENT_TYPES
from utvm.errors import CompileError, ConfigError

Numbers = tuple[float, ...]
_HALVES = {TensorProto.FLOAT16: TensorProto.FLOAT, TensorProto.BFLOAT16: TensorProto.FLOAT}
_NIBBLES = {
    TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT4: TensorProto.UINT8,
    TensorProto.INT2: TensorProto.INT8,
    TensorProto.UINT2: TensorProto.UINT8,
}
_TYPES = ("dtype", "output_dtype", "precision", "softmax_precision", "stash_type", "to")  # Attributes.


def put_in_order(proto: onnx.ModelProto, origin: str) -> bool:
    """Rewrite a model in place to one with the same results; return whether anything changed.

    Floats of 16 bits become float32, in inputs and outputs, too: a core computes no faster with them.
    """
    inlined = _inline(proto, origin) | _complete(proto)
    if proto.ir_version < 4 and {item.name for item in proto.graph.initializer} - {
        item.name for item in proto.graph.input
    }:
        proto.ir_version, inlined = (4, True)  # Before, each constant had to be an input, which not all exporters knew.
    graphs = list(_graphs(proto.graph))
    widened = _widen(graphs)
    return any((inlined, widened, *map(_fold, graphs), *map(_open_sizes, graphs), *map(_sort, graphs)))


def set_inputs(proto: onnx.ModelProto, values: Mapping[str, Numbers], origin: str) -> None:
    """Make constants of inputs, in place; one number fills an input of any shape."""
    inputs = {item.name: item for item in proto.graph.input}
    for name, numbers in values.items():
        if name not in inputs:
            raise ConfigError(
                f"{origin}: has no input {name!r}", f"inputs: {', '.join(inputs)}; --help lists the keys of --set"
            )
        kind = inputs[name].type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [extent.dim_value for extent in kind.shape.dim]
        full = [extent if extent > 0 else len(numbers) if len(shape) == 1 else 1 for extent in shape]
        array = np.array(numbers).astype(dtype)
        if len(numbers) > 1 and len(numbers) != np.prod(full, dtype=object):
            raise ConfigError(f"{origin}: input {name} is {full}, which {len(numbers)} numbers do not fill")
        if not np.array_equal(array, np.array(numbers)) and array.dtype.kind != "f":
            raise ConfigError(f"{origin}: input {name} is {dtype}, which cannot be {', '.join(map(str, numbers))}")
        whole = np.broadcast_to(array[0], full) if len(numbers) == 1 else array.reshape(full)
        proto.graph.initializer.append(numpy_helper.from_array(np.array(whole), name))
        if proto.ir_version >= 4:  # Before, each constant had to be an input, too.
            proto.graph.input.remove(inputs[name])


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, or a function, and the graphs of its operators."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _inline(proto: onnx.ModelProto, origin: str) -> bool:
    if not proto.functions:
        return False
    if not {item.domain for item in proto.opset_import} & {"", "ai.onnx"}:
        known = [item for item in proto.functions[0].opset_import if item.domain in ("", "ai.onnx")]
        proto.opset_import.extend(known[:1])
    try:
        if all(_is_of_version(function, proto) for function in proto.functions):
            proto.CopyFrom(onnx.inliner.inline_local_functions(proto))
        else:  # Converting a function from another operator set takes the types of its inputs.
            typed = onnx.shape_inference.infer_shapes(proto)
            proto.CopyFrom(onnx.inliner.inline_local_functions(typed, convert_version=True))
    except Exception as error:  # onnx raises several kinds here, some of them only bound in C++
        names = ", ".join(dict.fromkeys(function.name for function in proto.functions))
        raise CompileError(
            f"{origin}: a function that the file defines cannot be inlined: {names}",
            "onnx.inliner.inline_local_functions(model) reports the problem",
        ) from error
    return True


def _complete(proto: onnx.ModelProto) -> bool:
    """Add the shapes of outputs that have none."""
    bare = [value for value in proto.graph.output if not value.type.tensor_type.HasField("shape")]
    if not bare:
        return False
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # onnx raises several kinds here; the next check reports the problem
        return False
    known = {value.name: value for value in (*inferred.graph.output, *inferred.graph.value_info)}
    for value in bare:
        if value.name in known:
            value.CopyFrom(known[value.name])
    return True


def _is_of_version(function: onnx.FunctionProto, proto: onnx.ModelProto) -> bool:
    """Declare the model's operator set in a function whose operators are the same there; False if they differ."""
    version = max((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), default=0)
    (own, *_) = [item for item in function.opset_import if item.domain in ("", "ai.onnx")] or [None]
    if own is None or own.version == version:
        return True
    used = {node.op_type for graph in _graphs(function) for node in graph.node if node.domain in ("", "ai.onnx")}
    since = [{name: onnx.defs.get_schema(name, at).since_version for name in used} for at in (own.version, version)]
    own.version = version if since[0] == since[1] else own.version
    return since[0] == since[1]


def _widen(graphs: list[onnx.GraphProto]) -> bool:
    nodes = [node for graph in graphs for node in graph.node]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [attribute.t for attribute in attributes if attribute.HasField("t")]
    values = [value for graph in graphs for value in (*graph.input, *graph.output, *graph.value_info)]
    zeros = {name for node in nodes if node.op_type == "QuantizeLinear" for name in node.input[2:]}
    # Values that the model itself computes in 4 bits are limited to 4 bits: they stay, and are refused.
    computed = {item.i for item in attributes if item.name in _TYPES}
    computed |= {tensor.data_type for tensor in tensors if tensor.name in zeros}
    computed |= {value.type.tensor_type.elem_type for value in graphs[0].input}
    wide = {**_HALVES, **{narrow: kind for narrow, kind in _NIBBLES.items() if narrow not in computed}}
    changed = False
    for tensor in tensors:
        if tensor.data_type in wide:
            dtype = helper.tensor_dtype_to_np_dtype(wide[tensor.data_type])
            try:
                array = numpy_helper.to_array(tensor).astype(dtype)
            except (ValueError, TypeError):
                continue  # The check of constants names it.
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            changed = True
    for value in values:
        kind = value.type.tensor_type
        if kind.elem_type in wide:
            kind.elem_type, changed = wide[kind.elem_type], True
    for attribute in attributes:
        if attribute.name in _TYPES and attribute.i in _HALVES:
            attribute.i, changed = TensorProto.FLOAT, True
    return changed


def _fold(graph: onnx.GraphProto) -> bool:
    """Fold DequantizeLinear and Cast of constants whose type or blocks no library has."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    attributes = [(node, item) for node in graph.node for item in node.attribute if node.op_type == "Constant"]
    constants |= {node.output[0]: item.t for node, item in attributes if item.name == "value" and node.output}
    folded = []
    for node in graph.node:
        result = _real(node, [constants[name] for name in node.input if name in constants])
        if result is not None:
            folded.append(node)
            graph.initializer.append(numpy_helper.from_array(result, node.output[0]))
    for node in folded:
        graph.node.remove(node)
    used = {name for inner in _graphs(graph) for node in inner.node for name in node.input}
    used |= {value.name for value in graph.output}
    for name in {name for node in folded for name in node.input} - used:
        if name in {tensor.name for tensor in graph.initializer}:
            graph.initializer.remove(constants[name])
    return bool(folded)


def _real(node: onnx.NodeProto, given: list[onnx.TensorProto]) -> npt.NDArray[Any] | None:
    """Return the real numbers of a node's constants; None if it is not to be folded."""
    if node.op_type not in ("Cast", "DequantizeLinear") or len(given) != len(node.input) or not given:
        return None
    settings = {item.name: item.i for item in node.attribute}
    block = settings.get("block_size", 0)
    narrow = str(helper.tensor_dtype_to_np_dtype(given[0].data_type)) not in ELEMENT_TYPES
    try:
        data, *rest = map(numpy_helper.to_array, given)
        if node.op_type == "Cast":
            dtype = helper.tensor_dtype_to_np_dtype(settings["to"])
            return data.astype(dtype) if narrow and str(dtype) in ELEMENT_TYPES else None
        if not (block or narrow) or str(rest[0].dtype) not in ELEMENT_TYPES:
            return None
        axis = settings.get("axis", 1)
        scale, zero = rest[0], rest[1] if len(rest) > 1 else np.zeros_like(rest[0])
        if block:
            places = np.arange(data.shape[axis]) // block
            scale, zero = scale.take(places, axis), zero.take(places, axis)
        elif scale.size > 1:
            row = [-1 if place == axis % data.ndim else 1 for place in range(data.ndim)]
            scale, zero = scale.reshape(row), zero.reshape(row)
        # In this order: ONNX's definition subtracts first.
        centred = data.astype(scale.dtype) - zero.astype(scale.dtype)
        return np.asarray(centred * scale, scale.dtype)
    except (IndexError, KeyError, TypeError, ValueError):
        return None  # Later checks report the problem.


def _open_sizes(graph: onnx.GraphProto) -> bool:
    """Read a size of -1 as open, as exporters write it."""
    sizes = [
        extent
        for value in (*graph.input, *graph.output, *graph.value_info)
        for extent in value.type.tensor_type.shape.dim
        if extent.dim_value == -1
    ]
    for extent in sizes:
        extent.Clear()
    return bool(sizes)


def _sort(graph: onnx.GraphProto) -> bool:
    """Sort nodes so that each follows those whose results it reads; leave a cycle as it is."""
    producer = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    before = [{producer[name] for name in {*node.input, *_captures(node)} if name in producer} for node in graph.node]
    if all(place < number for number, places in enumerate(before) for place in places):
        return False
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(before))).static_order())
    except graphlib.CycleError:
        return False
    nodes = [onnx.NodeProto.FromString(graph.node[number].SerializeToString()) for number in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _captures(node: onnx.NodeProto) -> set[str]:
    inner = [graph for attribute in node.attribute if attribute.HasField("g") for graph in _graphs(attribute.g)]
    names = {name for graph in inner for item in graph.node for name in item.input}
    return names | {value.name for graph in inner for value in graph.output}
