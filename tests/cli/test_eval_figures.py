# SPDX-License-Identifier: Apache-2.0
"""Figures of ``model.eval``, compared with scikit-learn and with arithmetic by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from tests.cli.running import inv
from utvm.paths import ROOT
from utvm.session.evaluation import confusion, distance

_DIGITS = ROOT / "models" / "digits"
_SAMPLES = _DIGITS / "samples.npz"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "reference"), [("digits.onnx", "onnx"), ("digits_int8.tflite", "tflm")])
def test_accuracy_and_difference_from_a_library(tmp_path: Path, file: str, reference: str) -> None:
    samples = tmp_path / "samples.csv"
    pictures, labels = (np.load(_SAMPLES)[name] for name in ("x", "labels"))
    # The pictures have one channel; its position does not matter in a CSV file.
    np.savetxt(samples, pictures.reshape(len(pictures), -1), delimiter=",")
    options = (
        ("--samples", _SAMPLES, "--labels") if reference == "onnx" else ("--inputs", samples, f"--labels={_SAMPLES}")
    )
    words = ("--board=host", *options, "--json", tmp_path / "x.json")
    completed = inv("model.eval", _DIGITS / file, *words, "--reference", reference)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    results = json.loads((tmp_path / "x.json").read_text())
    predicted = [sample["prediction"] for sample in results["samples"]]
    assert results["confusion"] == confusion_matrix(labels, predicted).tolist()
    assert f"accuracy {results['accuracy']:.4f}, {(labels == predicted).sum()} of 100" in completed.stdout
    difference = results["reference"]
    assert difference["same_class"] == 100
    assert difference["largest"] == 0 if reference == "tflm" else 0 < difference["largest"] < 1e-4


def test_error_statistics_are_correct() -> None:
    outputs, reference = [[np.array([[3.0, 1.0]])], [np.array([[0.0, 2.0]])]], [[np.array([[3.0, 1.0]])]] * 2
    statistics = distance(outputs, reference)
    assert (statistics.largest, statistics.same_class) == (3.0, 1)
    assert statistics.rmse == pytest.approx(np.sqrt((0 + 0 + 9 + 1) / 4))
    assert statistics.snr_db == pytest.approx(10 * np.log10((9 + 1 + 9 + 1) / 10))


def test_absent_class_has_no_recall_or_precision() -> None:
    matrix = confusion([[np.array([[0.0, 1.0, 0.0]])]], [0])
    assert (matrix.accuracy, matrix.recall(0), matrix.recall(1), matrix.precision(0)) == (0.0, 0.0, None, None)
    assert matrix.precision(1) == 0.0


_LIBRARIES = {
    "litert": """
import numpy
class Interpreter:
    def __init__(self, model_content):
        from tflite_micro.python.tflite_micro import runtime
        self.model = runtime.Interpreter.from_bytes(model_content, arena_size=1 << 20)
    def allocate_tensors(self): pass
    def get_input_details(self): return [{"index": 7}]
    def get_output_details(self): return [{"index": 9}]
    def set_tensor(self, index, array): self.model.set_input(array, index - 7)
    def invoke(self): self.model.invoke()
    def get_tensor(self, index): return self.model.get_output(index - 9) + numpy.int8(1)
"""
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "name", "module", "difference"), [("digits_int8.tflite", "litert", "ai_edge_litert/interpreter.py", 1)]
)
def test_library_of_the_user_is_a_reference(
    tmp_path: Path, file: str, name: str, module: str, difference: float
) -> None:
    """The stand-in has the library's interface, and outputs that are wrong by the expected difference."""
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / module).write_text(_LIBRARIES[name])
    words = ("model.eval", _DIGITS / file, "--board=host", "--samples=3", "--reference", name)
    completed = inv(*words, PYTHONPATH=str(tmp_path))
    assert completed.returncode == 0, completed.stderr
    assert f"against {name}: largest difference {difference}" in completed.stdout
    (tmp_path / module).unlink()
    assert f"{name} cannot be loaded" in (errors := inv(*words, PYTHONPATH=str(tmp_path)).stderr)
    assert "hint: pip install utvm[references], or that library" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--reference", "torch"), "there is no reference 'torch'"),
        (("--reference", "tflm"), "tflm reads .tflite files"),
        (("--labels", str(_SAMPLES), "--samples", "101"), "holds 100 labels, not 101"),
        (("--labels",), "--labels names no file, and there is no samples file with labels\n  hint: give --labels FILE"),
        (("--samples", "a.npz", "--inputs", "b.npz"), "--samples and --inputs both name samples"),
        (("--samples", "none.npz"), "none.npz"),
    ],
)
def test_usage_error_is_one_message(words: tuple[str, ...], message: str) -> None:
    completed = inv("model.eval", "--model", _DIGITS / "digits.onnx", "--board", "host", *words)
    assert completed.returncode == 2
    assert message in completed.stderr
