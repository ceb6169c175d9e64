# SPDX-License-Identifier: Apache-2.0
"""int8 operators, compiled with gcc on this computer, against TensorFlow Lite Micro's reference kernels."""

import json
import math
import os
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from host_library import HostLibrary

from hil_tests.int8_cases import INT8_CASES, Int8Case
from models.tflite_reference import tflite_micro
from utvm.compiler import Target, compile_model, from_tflite, load

_MODELS = os.environ.get("UTVM_MODEL_CACHE", "")
_GOLDENS = "goldens.json"
_NETWORKS = ("pretrainedResnet_quant.tflite", "vww_96_int8.tflite")


@pytest.mark.slow
@pytest.mark.parametrize("case", INT8_CASES, ids=lambda case: case.name)
def test_operator_equals_the_reference_kernel(case: Int8Case, tmp_path: Path) -> None:
    compiled = compile_model(from_tflite(case.content(), "model"))
    assert not compiled.leftovers
    library, inputs = HostLibrary(compiled, tmp_path), case.runs()
    for sample, expected in zip(inputs, tflite_micro(case.content(), inputs), strict=True):
        np.testing.assert_array_equal(library(*sample), expected)


def test_case_names_are_unique() -> None:
    assert len({case.name for case in INT8_CASES}) == len(INT8_CASES)


@pytest.mark.slow
@pytest.mark.skipif(not _MODELS, reason="UTVM_MODEL_CACHE names no folder with the MLPerf Tiny models")
@pytest.mark.parametrize("target", [Target(), Target(extensions=("dsp",))], ids=["plain", "dsp"])
@pytest.mark.parametrize("network", _NETWORKS)
def test_network_equals_the_reference_kernels(network: str, target: Target, tmp_path: Path) -> None:
    file = Path(_MODELS) / network
    golden = json.loads((file.parent / _GOLDENS).read_text())["models"][network]
    model = load(file)
    shape = compile_model(model).inputs[0].shape
    generator = np.random.default_rng(0)
    counting = (np.arange(math.prod(shape)) * 37 + 11) % 256 - 128
    images = [counting.reshape(shape), *generator.integers(-128, 128, (20, *shape))]
    samples = [[image.astype(np.int8)] for image in images]
    expected = tflite_micro(file.read_bytes(), samples)
    assert expected[0][0].ravel().tolist() == golden
    executors: tuple[Literal["aot", "graph"], ...] = ("aot", "graph")
    for executor in executors:
        compiled = compile_model(model, target=target, executor=executor)
        (tmp_path / executor).mkdir()
        library = HostLibrary(compiled, tmp_path / executor, ["-O2"])
        for sample, outputs in zip(samples, expected, strict=True):
            np.testing.assert_array_equal(library(*sample), outputs)
