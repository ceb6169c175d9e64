# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 on the board that is a process: 46.8 MB of weights and 7.7 MB of working memory, with nothing set."""

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

# Of the largest logit. A rounding of float32 is off by 6e-8; each of 18 layers adds up to 4,608 products.
_TOLERANCE = 1e-4


def _in_float64(content: bytes) -> onnx.ModelProto:
    """Return the network with all its numbers in float64."""
    model = onnx.load_from_string(content)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return model


@pytest.mark.slow
def test_it_is_the_network_of_the_paper() -> None:
    model = onnx.load_from_string(network())
    onnx.checker.check_model(model, full_check=True)
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    learned = sum(size for name, size in sizes.items() if not name.endswith(("_mean", "_variance")))
    # What torchvision's resnet18 has, counted layer by layer.
    assert learned == 11_689_512
    assert [node.op_type for node in model.graph.node].count("Conv") == 20
    assert network() == network() != network(1)


@pytest.mark.nightly
@pytest.mark.slow
def test_it_runs_on_a_process_and_gives_what_float64_gives(tmp_path: Path) -> None:
    image = np.random.default_rng(2).standard_normal(INPUT, np.float32)
    given, written = tmp_path / "x.npy", tmp_path / "eval.json"
    np.save(given, image)
    words = ["model.eval", "--model", "resnet18", "--board", "host", "--samples", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "utvm", *words, "--inputs", given, "--json", written],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sample,) = json.loads(written.read_text())["samples"]
    logits = np.array(sample["outputs"]["logits"])
    evaluator = ReferenceEvaluator(_in_float64(network()))
    (expected,) = evaluator.run(None, {"image": image.astype(np.float64)})
    assert logits.shape == expected.shape == (1, 1000)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=_TOLERANCE * np.abs(expected).max())
    assert sample["prediction"] == expected.argmax()
    assert f"predicted {expected.argmax()}" in done.stdout
