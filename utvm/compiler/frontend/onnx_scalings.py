# SPDX-License-Identifier: Apache-2.0
"""What the integers stand for that an ONNX model takes and gives: what it does to them first, or last, says so."""

import math
from collections.abc import Mapping, Sequence

import onnx
from onnx import numpy_helper

from utvm.compiler.library import Scaling


def input_scalings(graph: onnx.GraphProto, names: Sequence[str]) -> tuple[Scaling | None, ...]:
    """The scaling of each input that becomes real numbers in but one way; None of others."""
    constants = _constants(graph)

    def scaling(name: str) -> Scaling | None:
        users = [node for node in graph.node if name in node.input]
        ways = {
            _way(node, constants) if node.op_type == "DequantizeLinear" and node.input[0] == name else None
            for node in users
        }
        return ways.pop() if len(ways) == 1 else None

    return tuple(map(scaling, names))


def output_scalings(graph: onnx.GraphProto, names: Sequence[str]) -> tuple[Scaling | None, ...]:
    """The scaling of each output that is made of real numbers, None of others."""
    constants = _constants(graph)
    made = {node.output[0]: _way(node, constants) for node in graph.node if node.op_type == "QuantizeLinear"}
    return tuple(map(made.get, names))


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    nodes = [node for node in graph.node if node.op_type == "Constant"]
    return {item.name: item for item in graph.initializer} | {
        node.output[0]: item.t for node in nodes for item in node.attribute if item.name == "value"
    }


def _way(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> Scaling | None:
    tensors = [constants.get(name) for name in node.input[1:3] if name]
    numbers = [
        numpy_helper.to_array(tensor).item() for tensor in tensors if tensor and math.prod(tensor.dims) == 1
    ]
    if not numbers or len(numbers) < len(tensors):
        return None
    return Scaling(float(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)
