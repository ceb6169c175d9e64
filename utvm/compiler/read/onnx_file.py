# SPDX-License-Identifier: Apache-2.0
"""Reading an ONNX file, with everything checked that can be checked before TVM sees it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import onnx
import onnx.external_data_helper
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from utvm.compiler.model import Model
from utvm.compiler.read.onnx_validate import check
from utvm.errors import ConfigError

MAX_DATA_BYTES = 1 << 28
"""More weights than these are refused unread: no microcontroller holds a thousandth of them."""


def from_onnx(
    content: bytes,
    name: str,
    origin: str | None = None,
    directory: Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Model:
    """Take a serialised ONNX ``ModelProto``."""
    origin = origin or f"ONNX model {name}"
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ConfigError(
            f"{origin}: is not an ONNX file, or only a part of one; nor is it TFLite, Relax or a PyTorch archive",
            "export the model again",
        ) from error
    if not proto.HasField("graph"):
        raise ConfigError(
            f"{origin}: is not an ONNX file, or only a part of one: it holds no graph", "export the model again"
        )
    fix(proto, shapes, origin)
    if _bring_in_external_data(proto, origin, directory) or shapes:
        content = proto.SerializeToString(deterministic=True)
    check(proto, origin)
    return Model(name, origin, "onnx", content)


def _bring_in_external_data(proto: onnx.ModelProto, origin: str, directory: Path | None) -> bool:
    found = False
    total = 0
    for tensor in _tensors(proto.graph):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        found = True
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        path = (directory or Path()) / location
        if directory is None or not location or not path.is_file():
            raise ConfigError(
                f"{origin}: the weights {tensor.name} are in another file, {location!r}, which is missing",
                "put it beside the model, or export the model with all its data inside",
            )
        total += path.stat().st_size
        if total > MAX_DATA_BYTES:
            raise ConfigError(
                f"{origin}: the weights are more than {MAX_DATA_BYTES} bytes, too many for any board"
            )
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(directory))
        except Exception as error:  # onnx raises its own errors, ValueError and OSError here
            raise ConfigError(
                f"{origin}: the weights {tensor.name} cannot be read from {location!r}: {error}"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return found


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def fix(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], origin: str) -> None:
    """Write sizes into a model, in place; what one open size is called is that size wherever it stands."""
    graph = proto.graph
    inputs = {item.name: item for item in graph.input}
    called: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ConfigError(f"{origin}: has no input {name!r}", f"inputs: {', '.join(inputs)}")
        dimensions = inputs[name].type.tensor_type.shape.dim
        told = [
            dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or "?"
            for dimension in dimensions
        ]
        fits = len(shape) == len(told) and all(
            isinstance(size, str) or size == wanted for size, wanted in zip(told, shape, strict=True)
        )
        if not fits:
            raise ConfigError(f"{origin}: input {name} is {told}, which {list(shape)} does not fit")
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
