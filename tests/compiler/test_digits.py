# SPDX-License-Identifier: Apache-2.0
"""The committed digits models agree with their README."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from host_library import HostLibrary

from models.digits import quantize
from models.digits.data import HELD_OUT, held_out, training
from models.tflite_reference import tflite_micro
from utvm.compiler import Model, Target, compile_model, load, reference

FOLDER = Path(__file__).parents[2] / "models" / "digits"


def predictions(model: Model) -> np.ndarray:
    run = reference(model)
    return np.array([run([image[None]])[0].argmax() for image in held_out()[0]])


def test_held_out_images_are_real_and_not_trained_on() -> None:
    images, labels = held_out()
    assert images.shape == (HELD_OUT, 1, 8, 8)
    assert images.min() == 0 and images.max() == 16
    assert set(labels) == set(range(10))
    trained = {image.tobytes() for image in training()[0]}
    assert len(trained) == 1797 - HELD_OUT
    assert not any(image.tobytes() in trained for image in images)


def test_held_out_accuracy_equals_the_readme() -> None:
    correct = int((predictions(load(FOLDER / "digits.onnx")) == held_out()[1]).sum())
    assert correct >= 0.97 * HELD_OUT
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| held-out accuracy | {correct} of {HELD_OUT}, {correct / HELD_OUT:.2%} |".replace("%", " %") in text


def test_int8_accuracy_equals_the_readme() -> None:
    images, labels = quantize.quantized_images(held_out()[0]), held_out()[1]
    outputs = tflite_micro(quantize.MODEL.read_bytes(), [[image[None]] for image in images])
    correct = sum(int(logits.argmax()) == label for (logits,), label in zip(outputs, labels, strict=True))
    assert correct >= 0.97 * HELD_OUT
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    row = f"| held-out accuracy, int8 | {correct} of {HELD_OUT}, {correct / HELD_OUT:.2%} |"
    assert row.replace("%", " %") in text


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), Target(extensions=("dsp",))], ids=["plain", "dsp"])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_int8_library_equals_the_reference_kernels(
    tmp_path: Path, target: Target, executor: Literal["aot", "graph"]
) -> None:
    library = compile_model(load(quantize.MODEL), target=target, executor=executor)
    compiled = HostLibrary(library, tmp_path, ["-O2"])
    images = quantize.quantized_images(held_out()[0])
    expected = tflite_micro(quantize.MODEL.read_bytes(), [[image[None]] for image in images])
    for image, (logits,) in zip(images, expected, strict=True):
        assert compiled(image[None])[0].tobytes() == logits.tobytes()


@pytest.mark.slow
def test_library_equals_tvm_on_held_out_images(tmp_path: Path) -> None:
    model = load(FOLDER / "digits.onnx")
    library = HostLibrary(compile_model(model), tmp_path, ["-O2"])
    run = reference(model)
    for image in held_out()[0]:
        (logits,), (expected,) = library(image[None]), run([image[None]])
        assert logits.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_quantisation_is_reproducible(tmp_path: Path) -> None:
    output = tmp_path / "digits_int8.tflite"
    subprocess.run([sys.executable, FOLDER / "quantize.py", output], check=True, capture_output=True, timeout=600)
    assert output.read_bytes() == quantize.MODEL.read_bytes()


@pytest.mark.nightly
def test_training_is_reproducible(tmp_path: Path) -> None:
    output = tmp_path / "digits.onnx"
    subprocess.run([sys.executable, FOLDER / "train.py", output], check=True, capture_output=True, timeout=600)
    if output.read_bytes() != (FOLDER / "digits.onnx").read_bytes():
        # Another C library or CPU rounds exp and log differently; the model is equally accurate.
        assert (predictions(load(output)) == held_out()[1]).mean() >= 0.97
