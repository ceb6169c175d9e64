# SPDX-License-Identifier: Apache-2.0
"""Packages of a quantised model, built by their user, equal TensorFlow Lite Micro with both executors."""

import json
from pathlib import Path
from typing import Literal

import pytest
from package_user import build_and_run, build_and_run_on_arm, parse_numbers, unpack

from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from utvm.compiler import Target
from utvm.compiler.package import package_model

IMAGE = quantize.quantized_images(held_out()[0][:1])[0][None]


def package_and_unpack(executor: Literal["aot", "graph"], target: Target, folder: Path) -> Path:
    archive = package_model(quantize.MODEL, folder / "digits.tar", executor=executor, target=target, example=[IMAGE])
    return unpack(archive, folder / "package")


def assert_output(text: str) -> None:
    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[IMAGE]])
    assert parse_numbers(text, "int8").tolist() == expected.ravel().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_example_equals_the_reference_kernels(executor: Literal["aot", "graph"], compiler: str, tmp_path: Path) -> None:
    assert_output(build_and_run(package_and_unpack(executor, Target(), tmp_path), compiler, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_example_equals_the_kernels_on_cortex_m(executor: Literal["aot", "graph"], tmp_path: Path) -> None:
    assert_output(build_and_run_on_arm(package_and_unpack(executor, Target(extensions=("dsp",)), tmp_path), tmp_path))


def test_package_has_scale_and_zero_point(tmp_path: Path) -> None:
    package = package_and_unpack("aot", Target(), tmp_path)
    details = json.loads((package / "metadata.json").read_text())["utvm"]
    header = (package / "codegen" / "host" / "include" / "digits_int8.h").read_text()
    # models/digits/quantize.py: pixels 0 to 16 become -128 to 127.
    scaling = details["inputs"][0]["scaling"]
    assert scaling == {"scale": pytest.approx(16 / 255, rel=1e-6), "zero_point": -128}
    assert "#define DIGITS_INT8_INPUT_0_ZERO_POINT (-128)\n" in header
    assert "#define DIGITS_INT8_INPUT_0_SCALE 0.0627451f\n" in header
