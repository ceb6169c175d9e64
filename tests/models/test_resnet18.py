# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 runs on the host board without settings: 46.8 MB of weights and 7.7 MB of working memory."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from models.resnet18.network import INPUT, network
from utvm.paths import ROOT

# Relative to the largest logit. float32 rounds by up to 6e-8; each of 18 layers adds up to 4,608 products.
_TOLERANCE = 1e-4


def _to_float64(content: bytes) -> onnx.ModelProto:
    """The network with all numbers in float64."""
    model = onnx.load_from_string(content)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return model


@pytest.mark.slow
def test_network_equals_the_paper() -> None:
    model = onnx.load_from_string(network())
    onnx.checker.check_model(model, full_check=True)
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    parameter_count = sum(size for name, size in sizes.items() if not name.endswith(("_mean", "_variance")))
    # As many as torchvision's resnet18, counted by layer.
    assert parameter_count == 11_689_512
    assert [node.op_type for node in model.graph.node].count("Conv") == 20
    assert network() == network() != network(1)


@pytest.mark.nightly
@pytest.mark.slow
def test_result_on_the_host_board_equals_float64(tmp_path: Path) -> None:
    image = np.random.default_rng(2).standard_normal(INPUT, np.float32)
    input_file, report = tmp_path / "x.npy", tmp_path / "eval.json"
    np.save(input_file, image)
    arguments = ["model.eval", "--model", "resnet18", "--board", "host", "--samples", "1"]
    completed = subprocess.run(
        [sys.executable, "-m", "utvm", *arguments, "--inputs", input_file, "--json", report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    (sample,) = json.loads(report.read_text())["samples"]
    logits = np.array(sample["outputs"]["logits"])
    evaluator = ReferenceEvaluator(_to_float64(network()))
    (expected,) = evaluator.run(None, {"image": image.astype(np.float64)})
    assert logits.shape == expected.shape == (1, 1000)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=_TOLERANCE * np.abs(expected).max())
    assert sample["prediction"] == expected.argmax()
    assert f"predicted {expected.argmax()}" in completed.stdout
