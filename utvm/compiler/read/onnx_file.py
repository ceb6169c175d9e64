# SPDX-License-Identifier: Apache-2.0
"""Read an ONNX file, checked before TVM (which may fail internally) and before stated sizes are allocated."""

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import onnx
import onnx.checker
import onnx.defs
import onnx.external_data_helper
import onnx.shape_inference
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import helper

from utvm.compiler import library, refusal
from utvm.compiler.read.onnx_order import Numbers, put_in_order, set_inputs
from utvm.compiler.refusal import Reading, check_order
from utvm.errors import CompileError, ConfigError

_LOG = logging.getLogger("utvm.compiler")
_HINT = "export the model again; onnx.checker.check_model(model, full_check=True) shows more"
MAX_DATA_BYTES = 1 << 28
"""Larger weights are refused unread: no microcontroller holds a thousandth of them."""
_MOST = 4  # Names listed before the rest is counted.


def from_onnx(
    content: bytes,
    name: str,
    origin: str | None = None,
    directory: Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    values: Mapping[str, Numbers] = MappingProxyType({}),
) -> library.Model:
    origin = origin or f"ONNX model {name}"
    proto = onnx.ModelProto()
    with ConfigError.on(
        DecodeError,
        f"{origin}: is not an ONNX file, or only a part of one; nor is it TFLite, Relax or a PyTorch archive",
        "export the model again",
    ):
        proto.ParseFromString(content)
    if not proto.HasField("graph"):
        raise ConfigError(
            f"{origin}: is not an ONNX file, or only a part of one: it holds no graph", "export the model again"
        )
    changed = _bring_in_external_data(proto, origin, directory)
    changed |= put_in_order(proto, origin)
    fix(proto, shapes, origin)
    set_inputs(proto, values, origin)
    changed |= check(proto, origin)
    if changed or shapes or values:
        content = proto.SerializeToString(deterministic=True)
    return library.Model(name, origin, "onnx", content)


def _bring_in_external_data(proto: onnx.ModelProto, origin: str, directory: Path | None) -> bool:
    has_external = False
    total = 0
    for tensor in _tensors(proto.graph):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        has_external = True
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        path = (directory or Path()) / location
        if directory is None or not location or not path.is_file():
            raise ConfigError(
                f"{origin}: the weights {tensor.name} are in another file, {location!r}, which is missing",
                "put it beside the model, or export the model with all its data inside",
            )
        total += path.stat().st_size
        if total > MAX_DATA_BYTES:
            raise ConfigError(f"{origin}: the weights are more than {MAX_DATA_BYTES} bytes, too many for any board")
        # onnx raises its own errors, ValueError and OSError here.
        with ConfigError.on(Exception, f"{origin}: the weights {tensor.name} cannot be read from {location!r}:"):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(directory))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return has_external


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def fix(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], origin: str) -> None:
    """Write sizes into a model, in place; an open size with a name is set wherever the name occurs."""
    graph = proto.graph
    inputs = {item.name: item for item in graph.input}
    called: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ConfigError(f"{origin}: has no input {name!r}", f"inputs: {', '.join(inputs)}")
        dimensions = inputs[name].type.tensor_type.shape.dim
        sizes = [
            dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or "?"
            for dimension in dimensions
        ]
        fits = len(shape) == len(sizes) and all(
            isinstance(size, str) or size == expected for size, expected in zip(sizes, shape, strict=True)
        )
        if not fits:
            raise ConfigError(f"{origin}: input {name} is {sizes}, which {list(shape)} does not fit")
        for dimension, size in zip(dimensions, shape, strict=True):
            if dimension.dim_param and called.setdefault(dimension.dim_param, size) != size:
                raise ConfigError(f"{origin}: {dimension.dim_param} is {called[dimension.dim_param]}, not {size}")
            dimension.dim_value = size
    for dimension in _dimensions(graph):
        if dimension.dim_param in called:
            dimension.dim_value = called[dimension.dim_param]


def _dimensions(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from value.type.tensor_type.shape.dim


def check(proto: onnx.ModelProto, origin: str) -> bool:
    """Refuse models that no library supports; return whether wrong sizes of results were dropped."""
    graph = proto.graph
    if not graph.node or not graph.output:
        raise CompileError(f"{origin}: the graph is empty", "export a model with at least one operator and output")
    _check_versions(proto, origin)
    _check_order(graph, origin)
    stored = {tensor.name for tensor in graph.initializer}
    _check_all(
        origin,
        (
            *(functools.partial(_check_constant, tensor, origin) for tensor in graph.initializer),
            *(functools.partial(_check_attributes, node, origin) for node in graph.node),
            *(
                functools.partial(_check_value, value, f"{origin}: input {value.name!r}", must_be_fixed=True)
                for value in graph.input
                if value.name not in stored
            ),
        ),
    )
    changed = _check_rules(proto, origin)
    versions = {item.domain: item.version for item in proto.opset_import}
    for node in graph.node:
        _check_required_inputs(node, versions.get(node.domain, 1), origin)
    return changed


def _check_all(origin: str, checks: Iterable[Callable[[], object]]) -> None:
    refused = refusal.refusals(checks)
    if len(refused) == 1:
        raise refused[0]
    text: dict[str, list[str]] = {}
    for error in refused:
        place, _, reason = error.message.removeprefix(f"{origin}: ").partition(": ")
        text.setdefault(reason, []).append(place)
    reasons = [
        f"{', '.join(places[:_MOST])}{f' and {len(places) - _MOST} more' * (len(places) > _MOST)}: {reason}"
        for reason, places in text.items()
    ]
    refusal.refuse(origin, reasons, refusal.hints(refused))


def _check_versions(proto: onnx.ModelProto, origin: str) -> None:
    if proto.ir_version > onnx.IR_VERSION:
        raise CompileError(
            f"{origin}: is written in IR version {proto.ir_version}; 1 to {onnx.IR_VERSION} are known",
            f"set model.ir_version = {onnx.IR_VERSION} where it is exported, if it needs nothing newer",
        )
    newest = onnx.defs.onnx_opset_version()
    # Some exporters list it twice.
    versions = sorted({item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")})
    if len(versions) != 1 or not 1 <= versions[0] <= newest:
        text = " and ".join(map(str, versions)) or "unknown"
        raise CompileError(
            f"{origin}: needs operator set {text}; 1 to {newest} are known",
            f"onnx.version_converter.convert_version(model, {newest}) converts it; or export it for an older one",
        )


def _check_order(graph: onnx.GraphProto, origin: str) -> None:
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer} | {""}
    steps = [Reading(place(node), list(node.input), list(node.output)) for node in graph.node]
    check_order(origin, steps, known, repr, "sort the nodes")


def _check_required_inputs(node: onnx.NodeProto, version: int, origin: str) -> None:
    """Refuse an omitted input that is required: ONNX's checker ignores it, and it crashes TVM."""
    if "" not in node.input or not onnx.defs.has(node.op_type, version, node.domain):
        return
    formal = onnx.defs.get_schema(node.op_type, version, node.domain).inputs
    for number, name in enumerate(node.input):
        expected = formal[min(number, len(formal) - 1)]
        if not name and expected.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            raise CompileError(f"{origin}: {place(node)} lacks its input {number}, {expected.name}")


def _check_attributes(node: onnx.NodeProto, origin: str) -> None:
    for attribute in node.attribute:
        tensors = [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]
        for tensor in tensors:
            _check_constant(tensor, origin)
        if attribute.sparse_tensors or attribute.HasField("sparse_tensor"):
            raise CompileError(f"{origin}: {place(node)} has a sparse constant, which is not supported")


def _check_constant(tensor: onnx.TensorProto, origin: str) -> None:
    place = f"{origin}: constant {tensor.name!r}"
    if any(extent < 0 for extent in tensor.dims):
        raise CompileError(f"{place}: has a negative dimension: {tuple(tensor.dims)}")
    size = library.check_tensor(place, tensor.dims, _dtype(tensor.data_type), may_be_empty=True)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != size:
        raise CompileError(f"{place}: holds {len(tensor.raw_data)} bytes where its shape needs {size}")


def _check_value(value: onnx.ValueInfoProto, place: str, *, must_be_fixed: bool) -> None:
    kind = value.type.WhichOneof("value")
    if kind is None and not must_be_fixed:
        return
    if kind != "tensor_type":
        raise CompileError(f"{place}: is not a tensor", "only tensors can be handed to a board")
    tensor = value.type.tensor_type
    if must_be_fixed and not tensor.HasField("shape"):
        raise CompileError(f"{place}: has no shape", "give it a fixed shape when exporting the model")
    extents = []
    for number, dimension in enumerate(tensor.shape.dim):
        if dimension.HasField("dim_value"):
            extents.append(dimension.dim_value)
        elif must_be_fixed:
            symbol = f" ({dimension.dim_param})" if dimension.dim_param else ""
            raise CompileError(
                f"{place}: dimension {number}{symbol} has no fixed size",
                "memory is planned ahead: give --set shape=NAME=1,... (a batch is usually 1), or export it so",
            )
    if any(extent < 0 for extent in extents):
        raise CompileError(f"{place}: has a negative dimension: {tuple(extents)}")
    library.check_tensor(place, extents, _dtype(tensor.elem_type))


def _dtype(element_type: int) -> str:
    try:
        name = str(onnx.TensorProto.DataType.Name(element_type)).lower()
    except ValueError:
        return f"number {element_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)


def _check_rules(proto: onnx.ModelProto, origin: str) -> bool:
    stale = False
    try:
        onnx.checker.check_model(_with_shapes(proto))
        try:
            inferred = _infer(proto)
        except onnx.shape_inference.InferenceError as error:
            if "existing shape" in str(error):
                # A model edited after export may state outdated sizes of results; nothing depends on them.
                del proto.graph.value_info[:]
                for value in proto.graph.output:
                    value.type.tensor_type.ClearField("shape")
                inferred, stale = _infer(proto), True
                del proto.graph.output[:]
                proto.graph.output.extend(inferred.graph.output)
            elif broken_rule(proto):
                raise
            else:  # Inference refuses some functions of ONNX's own, such as MeanVarianceNormalization.
                inferred = onnx.shape_inference.infer_shapes(proto)
    except Exception as error:  # onnx raises several kinds here, some of them only bound in C++
        # With such a name, onnx's message is lost on the way here, differently in each Python.
        _LOG.debug("%s: %r", origin, error)
        reason = (
            (broken_rule(_with_shapes(proto)) or "the graph as a whole")
            if _is_text(proto)
            else "a name in it is not UTF-8"
        )
        raise CompileError(f"{origin}: breaks ONNX's rules: {reason}", _HINT) from error
    # Axes, scales and regions may be empty, wherever they are stored.
    stored = {name for node in proto.graph.node if node.op_type == "Constant" for name in node.output}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        if value.name not in stored:
            _check_value(value, f"{origin}: tensor {value.name!r}", must_be_fixed=False)
    return stale


def _with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a shape for each output: ONNX's checker requires one, which inference may not find."""
    if all(value.type.tensor_type.HasField("shape") for value in proto.graph.output):
        return proto
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    for value in whole.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return whole


def _infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)


def _is_text(message: Message) -> bool:
    for field, value in message.ListFields():
        values = [value] if isinstance(value, str | bytes | Message) else value
        if field.type == field.TYPE_STRING and any(isinstance(value, bytes) for value in values):
            return False
        if field.type == field.TYPE_MESSAGE and not all(map(_is_text, values)):
            return False
    return True


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
    extents = [size.dim_value if size.HasField("dim_value") else size.dim_param or "?" for size in tensor.shape.dim]
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
