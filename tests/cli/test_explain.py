# SPDX-License-Identifier: Apache-2.0
"""``model.report --explain``: the treatment of each operator of a model, with the reason."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.cli.running import inv
from utvm.paths import ROOT

DIGITS = ROOT / "models" / "digits" / "digits_int8.tflite"
WORDS = ("folded: ", "rewritten: ", "fused: ", "kernel: ", "in float: ", "memory: ", "TVM: ")


def _notes(*words: object, **env: str) -> list[str]:
    completed = inv(*words, **env)
    assert completed.returncode == 0, completed.stderr
    return [line for line in completed.stdout.splitlines() if line.startswith(WORDS)]


def _float_model(path: Path) -> Path:
    """Write a float model: a folded constant, a product with an addition, and a Celu."""
    nodes = [
        helper.make_node("Neg", ["w"], ["v"], name="turned"),
        helper.make_node("MatMul", ["x", "v"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["s"], name="sum"),
        helper.make_node("Celu", ["s"], ["y"], name="curve"),
    ]
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in "xy"]
    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (4, 4)), ("b", 4))]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], weights)
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())]
        ).SerializeToString()
    )
    return path


def _write_half_quantised(path: Path) -> Path:
    """Write a quantised model with one layer that integers do not support: a convolution of a batch of two."""
    constants = {"w": np.ones((3, 2, 3, 3), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    tensors = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 2, 4, 4]), ("y", [2, 3, 2, 2]))
    ]
    weights = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    return path


@pytest.mark.slow
def test_folding_and_fusion_are_reported_also_from_the_cache(tmp_path: Path) -> None:
    report = ("model.report", _float_model(tmp_path / "real.onnx"), "--board", "stm32f746", "--output", tmp_path)
    words = (*report, "--explain")
    cold = _notes(*words, XDG_CACHE_HOME=str(tmp_path))
    assert "folded: Neg (at turned) is a constant" in cold
    assert any(line.startswith("rewritten: Celu (at curve): as ") for line in cold)
    assert any(line.startswith("fused: matmul + add") for line in cold)
    assert any(line.startswith("kernel: ") and ", tile of " in line for line in cold)
    assert cold[-1].startswith("memory: no plan needs less than ")
    assert _notes(*words, XDG_CACHE_HOME=str(tmp_path)) == cold
    assert not _notes(*words[:-1], XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        ("stm32f746", "DSP extension: two products in an instruction, weights in RAM"),
        ("host", "plain C: two pixels in a word"),
    ],
)
def test_reason_for_a_kernel_is_reported(board: str, reason: str, tmp_path: Path) -> None:
    notes = _notes("model.report", DIGITS, "--board", board, "--explain", "--output", tmp_path)
    assert f"kernel: conv1: conv2d_int8, {reason}" in notes


@pytest.mark.slow
def test_every_command_reports_operators_in_float(tmp_path: Path) -> None:
    model = _write_half_quantised(tmp_path / "half.onnx")
    why = "nn.conv2d (c): batches of more than one image are not supported in integers"
    line = f"in float, though the model is quantised: {why}"
    for command in (("model.run",), ("model.eval", "--samples", "1"), ("firmware.size",), ("firmware.build",)):
        completed = inv(command[0], "--model", model, "--board", "mps2-an385", *command[1:], cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert completed.stdout.splitlines().count(line) == 1, completed.stdout
    assert f"in float: {why}" in _notes("model.report", model, "--explain", "--output", tmp_path)
