# SPDX-License-Identifier: Apache-2.0
"""The committed digits models: what their README says is true."""

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


def test_held_out_accuracy_is_what_the_readme_says() -> None:
    right = int((predictions(load(FOLDER / "digits.onnx")) == held_out()[1]).sum())
    assert right >= 0.97 * HELD_OUT
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| held-out accuracy | {right} of {HELD_OUT}, {right / HELD_OUT:.2%} |".replace("%", " %") in text


def test_the_int8_model_is_as_right_as_the_readme_says() -> None:
    images, labels = quantize.quantized_images(held_out()[0]), held_out()[1]
    outputs = tflite_micro(quantize.MODEL.read_bytes(), [[image[None]] for image in images])
    right = sum(int(logits.argmax()) == label for (logits,), label in zip(outputs, labels, strict=True))
    assert right >= 0.97 * HELD_OUT
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    row = f"| held-out accuracy, int8 | {right} of {HELD_OUT}, {right / HELD_OUT:.2%} |"
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
def test_library_equals_tvm_bit_for_bit_on_every_held_out_image(tmp_path: Path) -> None:
    model = load(FOLDER / "digits.onnx")
    library = HostLibrary(compile_model(model), tmp_path, ["-O2"])
    run = reference(model)
    for image in held_out()[0]:
        (logits,), (answer,) = library(image[None]), run([image[None]])
        assert logits.tobytes() == answer.tobytes()


@pytest.mark.slow
def test_quantising_again_gives_the_same_model(tmp_path: Path) -> None:
    again = tmp_path / "digits_int8.tflite"
    subprocess.run([sys.executable, FOLDER / "quantize.py", again], check=True, capture_output=True, timeout=600)
    assert again.read_bytes() == quantize.MODEL.read_bytes()


@pytest.mark.nightly
def test_training_again_gives_the_same_model(tmp_path: Path) -> None:
    again = tmp_path / "digits.onnx"
    subprocess.run([sys.executable, FOLDER / "train.py", again], check=True, capture_output=True, timeout=600)
    if again.read_bytes() != (FOLDER / "digits.onnx").read_bytes():
        # Another C library or another CPU rounds exp and log differently; the model is as good.
        assert (predictions(load(again)) == held_out()[1]).mean() >= 0.97
