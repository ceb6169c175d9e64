# SPDX-License-Identifier: Apache-2.0
"""The guide for Python programs: its examples run unchanged, and further cases."""

import doctest
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import utvm
from tests.cli.running import inv
from utvm import compiler
from utvm.errors import ConfigError, ProbeError
from utvm.paths import DATA, ROOT

pytestmark = pytest.mark.slow

_DIGITS = DATA / "models" / "digits" / "digits.onnx"


def test_guides_examples_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert (failed, tried > 10) == (0, True)


def test_models_alternate_and_a_closed_board_is_an_error() -> None:
    sample = np.zeros((1, 1, 8, 8), np.float32)
    library = compiler.compile_model(compiler.load(_DIGITS), name="plain")
    with utvm.open("host") as board:
        first, second = board.load(_DIGITS), board.load(library)
        assert second.library is library
        results = [model.run(sample) for model in (first, second, first)]
        assert len({run.outputs[0].tobytes() for run in results}) == 1
        assert first.profile(sample).unit == "ns"
        with pytest.raises(ProbeError, match="has no debug port"):
            board.memory.read(0, 4)
    with pytest.raises(ProbeError, match="not attached"):
        first.run(sample)


def test_float_model_is_quantised_compared_and_packaged(tmp_path: Path) -> None:
    samples = np.load(DATA / "models" / "digits" / "samples.npz")
    x, labels = samples["x"][:40], samples["labels"][:40]
    with utvm.load(_DIGITS) as model:
        assert model.evaluate(x, labels).accuracy == np.mean(model.predict(x).argmax(1) == labels)
        int8 = model.quantize(x, output=tmp_path / "int8.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "int8.onnx", providers=["CPUExecutionProvider"])
        theirs = np.concatenate([session.run(None, {"image": image})[0] for image in np.split(x, len(x))])
        assert (int8.predict(x).argmax(1) == theirs.argmax(1)).all()
        comparison = model.compare(int8, inputs=x, labels=labels)
        assert [row.model for row in comparison] == ["digits", "digits_int8"]
        assert comparison[1].accuracy == np.mean(theirs.argmax(1) == labels)
        assert "<svg" in comparison._repr_html_() and "ns of one run" in comparison._repr_html_()
        profile = model.profile()
        assert "ns in 5 steps" in repr(profile) and 'srcdoc="&lt;!doctype html&gt;' in profile._repr_html_()
        model.package(tmp_path / "python.tar")
        with pytest.raises(ConfigError, match="int9"):
            model.quantize(x, to="int9")
        with pytest.raises(ConfigError, match="quantised already"):
            int8.quantize(x)
    assert inv("model.package", _DIGITS, "--board", "host", "-o", tmp_path / "command.tar").returncode == 0
    assert (tmp_path / "python.tar").read_bytes() == (tmp_path / "command.tar").read_bytes()


def test_samples_and_labels_that_do_not_fit_are_refused() -> None:
    int8 = DATA / "models" / "digits" / "digits_int8.tflite"
    samples = np.load(DATA / "models" / "digits" / "samples.npz")
    x, labels = samples["x"][:4].reshape(4, 8, 8, 1), samples["labels"][:4]
    with utvm.load(int8) as model:
        (tensor,) = model.inputs
        steps = np.rint(x / tensor.scaling.scale) + tensor.scaling.zero_point
        integers = np.clip(steps, -128, 127).astype(np.int8)
        # The rule of quantisation in full; and single samples give the same outputs as many.
        assert (model.predict(x) == model.predict(integers)).all()
        assert (model.predict(x)[2:3] == model.run(integers[2:3]).outputs[0]).all()
        with pytest.raises(ConfigError, match="4 labels for 3 samples"):
            model.evaluate(x[:3], labels=labels)
        with pytest.raises(ConfigError, match="2 arrays for 1 inputs"):
            model.predict(x, x)
        with pytest.raises(ConfigError, match=r"not int8 \[4, 64\]"):
            model.predict(x.reshape(4, 64).astype(float))
        assert "digits_int8 on PROCESS host" in repr(model)
        html = model._repr_html_()
        assert "conv2d_int8" in html and "<td>int8</td>" in html and 'aria-label="memory plan of digits_int8' in html
    with pytest.raises(ProbeError, match="not attached"):
        model.predict(x)
