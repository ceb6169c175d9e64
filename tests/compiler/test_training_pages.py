# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages on Keras, PyTorch and scikit-learn run as written."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

from utvm.paths import ROOT


def requires(package: str, extra: str) -> pytest.MarkDecorator:
    lacking = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(lacking, reason=f"{package}, of the optional extra {extra}, is not installed")


def _run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a page's example in a folder; return its variables."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(example, page, "exec"), names)  # The page's text.
    return names


@pytest.mark.nightly
@requires("skl2onnx", "sklearn")
def test_scikit_learn_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("sklearn.md", tmp_path, monkeypatch)


@pytest.mark.nightly
@requires("torch", "torch")
def test_pytorch_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("pytorch.md", tmp_path, monkeypatch)


@pytest.mark.nightly
@requires("tensorflow", "keras")
def test_keras_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _run("keras.md", tmp_path, monkeypatch)
    interpreter = names["tf"].lite.Interpreter(model_content=names["content"])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], names["images"][:1])
    interpreter.invoke()
    (result,) = interpreter.get_output_details()
    # TensorFlow's kernels may differ from the reference by one step of the last dequantisation.
    graph = tflite.Model.GetRootAsModel(names["content"], 0).Subgraphs(0)
    last = graph.Operators(graph.OperatorsLength() - 1)
    step = graph.Tensors(last.Inputs(0)).Quantization().Scale(0)
    np.testing.assert_allclose(names["answer"], interpreter.get_tensor(result["index"]), rtol=0, atol=1.01 * step)
