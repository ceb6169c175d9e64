# SPDX-License-Identifier: Apache-2.0
"""How good ``model.eval`` says that a model is, held against scikit-learn, and against arithmetic by hand."""

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
def test_labels_and_another_library(tmp_path: Path, file: str, reference: str) -> None:
    samples = tmp_path / "samples.csv"
    pictures, labels = (np.load(_SAMPLES)[name] for name in ("x", "labels"))
    # The pictures have one channel, so that its place does not matter to a text.
    np.savetxt(samples, pictures.reshape(len(pictures), -1), delimiter=",")
    given = (
        ("--samples", _SAMPLES, "--labels") if reference == "onnx" else ("--inputs", samples, f"--labels={_SAMPLES}")
    )
    words = ("--board=host", *given, "--json", tmp_path / "x.json")
    done = inv("model.eval", _DIGITS / file, *words, "--reference", reference)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "x.json").read_text())
    predicted = [sample["prediction"] for sample in written["samples"]]
    assert written["confusion"] == confusion_matrix(labels, predicted).tolist()
    assert f"accuracy {written['accuracy']:.4f}, {(labels == predicted).sum()} of 100" in done.stdout
    apart = written["reference"]
    assert apart["same_class"] == 100
    assert apart["largest"] == 0 if reference == "tflm" else 0 < apart["largest"] < 1e-4


def test_distance_is_what_it_says() -> None:
    ours, theirs = [[np.array([[3.0, 1.0]])], [np.array([[0.0, 2.0]])]], [[np.array([[3.0, 1.0]])]] * 2
    found = distance(ours, theirs)
    assert (found.largest, found.same_class) == (3.0, 1)
    assert found.rmse == pytest.approx(np.sqrt((0 + 0 + 9 + 1) / 4))
    assert found.snr_db == pytest.approx(10 * np.log10((9 + 1 + 9 + 1) / 10))


def test_a_class_that_is_not_there_has_no_share() -> None:
    found = confusion([[np.array([[0.0, 1.0, 0.0]])]], [0])
    assert (found.accuracy, found.recall(0), found.recall(1), found.precision(0)) == (0.0, 0.0, None, None)
    assert found.precision(1) == 0.0


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
    ("file", "name", "module", "apart"), [("digits_int8.tflite", "litert", "ai_edge_litert/interpreter.py", 1)]
)
def test_libraries_that_users_install_are_asked_too(
    tmp_path: Path, file: str, name: str, module: str, apart: float
) -> None:
    """A stand-in with the doors of the library, whose answers are wrong by as much as is then to be said."""
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / module).write_text(_LIBRARIES[name])
    words = ("model.eval", _DIGITS / file, "--board=host", "--samples=3", "--reference", name)
    done = inv(*words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"against {name}: largest difference {apart}" in done.stdout
    (tmp_path / module).unlink()
    assert f"{name} cannot be loaded" in (said := inv(*words, PYTHONPATH=str(tmp_path)).stderr)
    assert "hint: pip install utvm[references], or that library" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reference", "torch"), "there is no reference 'torch'"),
        (("--reference", "tflm"), "tflm reads .tflite files"),
        (("--labels", str(_SAMPLES), "--samples", "101"), "holds 100 labels, not 101"),
        (("--labels",), "--labels names no file, and there is no samples file with labels\n  hint: give --labels FILE"),
        (("--samples", "a.npz", "--inputs", "b.npz"), "--samples and --inputs both name samples"),
        (("--samples", "none.npz"), "none.npz"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], said: str) -> None:
    done = inv("model.eval", "--model", _DIGITS / "digits.onnx", "--board", "host", *words)
    assert done.returncode == 2
    assert said in done.stderr
