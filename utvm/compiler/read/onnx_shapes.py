# SPDX-License-Identifier: Apache-2.0
"""Gives an ONNX model's inputs the sizes that its file leaves open, such as the batch."""

from collections.abc import Iterator, Mapping

import onnx

from utvm.errors import ConfigError


def fix(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], origin: str) -> None:
    """Write sizes into a model, in place; what one open size is called is that size wherever it stands.

    Args:
        shapes: by the names of inputs, with all their dimensions.
        origin: what messages call the model.
    """
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
