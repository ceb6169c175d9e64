# SPDX-License-Identifier: Apache-2.0
"""Float operators in a quantised model are named, with the reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from utvm.compiler import Model, compile_model, from_onnx


def _model(nodes: Sequence[Any], stored: Mapping[str, Any], images: int) -> Model:
    """A model with images x, 5 by 5 with two channels, and y, 3 by 3 with three."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [images, 2, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [images, 3, 3, 3])],
        [numpy_helper.from_array(np.array(value), name) for name, value in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return from_onnx(proto.SerializeToString(), "pictures")


def test_float_operator_has_a_reason() -> None:
    stored = {"w": np.ones((3, 2, 3, 3), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    library = compile_model(_model(nodes, stored, images=2))
    reasons = {leftover.operator: leftover.reason for leftover in library.leftovers}
    assert reasons == {"nn.conv2d": "batches of more than one image are not supported in integers"}


def test_float_convolution_before_quantisation() -> None:
    random = np.random.default_rng(3)
    stored = {
        "w": random.random((3, 2, 3, 3), np.float32),
        "b": random.random(3, np.float32),
        "s": np.float32(0.1),
        "z": np.int8(0),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    library = compile_model(_model(nodes, stored, images=1))
    assert any("conv2d" in call.kind for call in library.calls)
