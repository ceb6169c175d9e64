# SPDX-License-Identifier: Apache-2.0
"""The maximum of a window, also if all values are infinite."""

from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary
from onnx import TensorProto, helper

from utvm.compiler import compile_model, from_onnx


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool_of_minus_infinity(rank: int, tmp_path: Path) -> None:
    shape, half = (1, 1, *[4] * rank), (1, 1, *[2] * rank)
    # The second node is fused with the first.
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2] * rank, strides=[2] * rank),
        helper.make_node("Neg", ["p"], ["y"]),
    ]
    input_info, output_info = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in (("x", shape), ("y", half))
    )
    graph = helper.make_graph(nodes, "g", [input_info], [output_info])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = HostLibrary(compile_model(from_onnx(proto.SerializeToString(), "m")), tmp_path)
    numbers = np.full(shape, -np.inf, np.float32)
    assert (run(numbers)[0] == np.inf).all()
    numbers[(0, 0, *[0] * rank)] = -3.0
    assert sorted(run(numbers)[0].ravel())[:2] == [3.0, np.inf]
