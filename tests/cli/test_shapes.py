# SPDX-License-Identifier: Apache-2.0
"""--set shape: sizes for the open dimensions of an ONNX file."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.running import inv
from utvm import compiler
from utvm.errors import CompileError, ConfigError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x @ w, for any batch size."""
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def test_open_size_is_set_everywhere(model: Path) -> None:
    read = onnx.load_from_string(compiler.load(model, shapes={"x": (2, 4)}).content)
    (first,), (result,) = read.graph.input, read.graph.output
    assert [dimension.dim_value for dimension in first.type.tensor_type.shape.dim] == [2, 4]
    assert [dimension.dim_value for dimension in result.type.tensor_type.shape.dim] == [2, 3]
    with pytest.raises(CompileError, match=r"dimension 0 \(batch\) has no fixed size\n.*--set shape=NAME=1"):
        compiler.load(model)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1, 4)}, "has no input 'z'\n  hint: inputs: x"),
        ({"x": (1, 5)}, r"input x is \['batch', 4\], which \[1, 5\] does not fit"),
        ({"x": (1,)}, r"which \[1\] does not fit"),
    ],
)
def test_incompatible_shape_is_refused(model: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compiler.load(model, shapes=shapes)


@pytest.mark.slow
def test_option_sets_a_shape(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(2, 4, dtype=np.float32))
    run = ["model.run", model, "--board", "host", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy"]
    completed = inv(*run, "--set", "shape=x=2,4")
    assert completed.returncode == 0, completed.stderr
    # The first two rows of w.
    assert np.load(tmp_path / "y.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    wrong = inv(*run, "--set", "shape=x=2,four")
    assert (wrong.returncode, "is not a shape\n  hint: write shape=NAME=1,8,8,1" in wrong.stderr) == (2, True)
