# SPDX-License-Identifier: Apache-2.0
"""Floats that an integer cannot hold become the same integer wherever a model runs."""

from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite, reference

_FLOATS = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 300.7, -300.7, -0.9, 2.0**31, -(2.0**31)], np.float32)
_SANITIZERS = ("-O1", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")


def _model(operator: str, dtype: str, **quantisation: float) -> bytes:
    builder = Builder()
    builder.tensor("x", _FLOATS.shape, "float32")
    builder.tensor("y", _FLOATS.shape, dtype, **quantisation)
    builder.operator(operator, ["x"], ["y"])
    return builder.finish(["x"], ["y"])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_a_cast_gives_the_nearest_integer_and_zero_for_nan(dtype: str, tmp_path: Path) -> None:
    model = from_tflite(_model("CAST", dtype), "m")
    info = np.iinfo(dtype)
    wanted = [0 if np.isnan(value) else int(np.clip(float(value), -1e30, 1e30)) for value in _FLOATS]
    golden = [min(max(value, info.min), info.max) for value in wanted]
    assert HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(_FLOATS)[0].tolist() == golden
    assert reference(model)([_FLOATS])[0].tolist() == golden


def test_a_quantisation_is_defined_for_every_float(tmp_path: Path) -> None:
    model = from_tflite(_model("QUANTIZE", "int8", scale=0.5, zero_point=3), "m")
    golden = [-128, 127, -128, 127, -128, 127, -128, 1, 127, -128]
    assert HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(_FLOATS)[0].tolist() == golden
    assert reference(model)([_FLOATS])[0].tolist() == golden
