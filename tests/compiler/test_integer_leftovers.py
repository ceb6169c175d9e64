# SPDX-License-Identifier: Apache-2.0
"""What stays in float of a quantised model is named, with the reason."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hil_tests.int8_cases import Quantised, convolution
from utvm.compiler import compile_model, from_onnx, from_tflite


def test_operator_that_stays_in_float_says_why() -> None:
    images = Quantised((2, 5, 5, 2))
    case = convolution("two images", images, Quantised((2, 5, 5, 3), 0.3, -5), (3, 3), padding="SAME")
    library = compile_model(from_tflite(case.content(), "two_images"))
    reasons = {leftover.operator: leftover.reason for leftover in library.leftovers}
    reason = "batches of more than one image are not supported in integers"
    assert reasons == {"nn.conv2d": reason, "add": reason}


def test_a_float_convolution_with_a_bias_may_stand_before_a_quantisation() -> None:
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
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 3, 3])],
        [numpy_helper.from_array(np.array(value), name) for name, value in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    library = compile_model(from_onnx(proto.SerializeToString(), "mixed"))
    assert any("conv2d" in call.kind for call in library.calls)
