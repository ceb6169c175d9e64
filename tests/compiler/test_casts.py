# SPDX-License-Identifier: Apache-2.0
"""Floats beyond an integer's range have the same integer on all targets."""

from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary
from onnx import helper, numpy_helper

import utvm
from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_onnx, from_tflite, reference

_FLOATS = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 300.7, -300.7, -0.9, 2.0**31, -(2.0**31)], np.float32)
_SANITIZERS = ("-O1", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")


def _model(operator: str, dtype: str, **quantisation: float) -> bytes:
    builder = Builder()
    builder.tensor("x", _FLOATS.shape, "float32")
    builder.tensor("y", _FLOATS.shape, dtype, **quantisation)
    builder.operator(operator, ["x"], ["y"])
    return builder.finish(["x"], ["y"])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_cast_saturates_and_nan_is_zero(dtype: str, tmp_path: Path) -> None:
    model = from_tflite(_model("CAST", dtype), "m")
    info = np.iinfo(dtype)
    truncated = [0 if np.isnan(value) else int(np.clip(float(value), -1e30, 1e30)) for value in _FLOATS]
    golden = [min(max(value, info.min), info.max) for value in truncated]
    assert HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(_FLOATS)[0].tolist() == golden
    assert reference(model)([_FLOATS])[0].tolist() == golden


def test_quantisation_is_defined_for_all_floats(tmp_path: Path) -> None:
    model = from_tflite(_model("QUANTIZE", "int8", scale=0.5, zero_point=3), "m")
    golden = [-128, 127, -128, 127, -128, 127, -128, 1, 127, -128]
    assert HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(_FLOATS)[0].tolist() == golden
    assert reference(model)([_FLOATS])[0].tolist() == golden


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_onnx_cast_equals_constant_folding(dtype: str, tmp_path: Path) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=kind),
        helper.make_node("Cast", ["stored"], ["folded"], to=kind),
        helper.make_node("Mul", ["stored", "one"], ["same"]),
        helper.make_node("Cast", ["same"], ["computed"], to=kind),
        helper.make_node("Identity", ["folded"], ["z"]),
    ]
    results = [helper.make_tensor_value_info(name, kind, _FLOATS.shape) for name in ("y", "z", "computed")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, _FLOATS.shape)],
        results,
        [numpy_helper.from_array(_FLOATS, "stored"), numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = from_onnx(proto.SerializeToString(), "m")
    info = np.iinfo(dtype)
    truncated = [0 if np.isnan(value) else int(np.clip(float(value), -1e30, 1e30)) for value in _FLOATS]
    golden = [min(max(value, info.min), info.max) for value in truncated]
    for results in (HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(_FLOATS), reference(model)([_FLOATS])):
        assert [result.tolist() for result in results] == [golden] * 3


@pytest.mark.slow
@pytest.mark.parametrize("count", [256, 511, 513, 4095, 4096])
def test_softmax_of_many_equal_numbers(count: int, tmp_path: Path) -> None:
    """For more than 511, the kernel shifts by 32 bits, which is undefined in C."""
    builder = Builder()
    builder.tensor("x", (1, count), "int8", scale=0.05, zero_point=0)
    builder.tensor("y", (1, count), "int8", scale=1 / 256, zero_point=-128)
    builder.operator("SOFTMAX", ["x"], ["y"])
    model = from_tflite(builder.finish(["x"], ["y"]), "m")
    x = np.full((1, count), 7, np.int8)
    golden = [[int(np.floor(256 / count + 0.5)) - 128] * count]
    assert HostLibrary(compile_model(model), tmp_path, _SANITIZERS)(x)[0].tolist() == golden
    assert reference(model)([x])[0].tolist() == golden


def _all_casts() -> bytes:
    """A model with all conversions that are undefined in C for some numbers."""
    builder, outputs = Builder(), []
    builder.tensor("x", (64,), "float32")
    builder.tensor("q", (64,), "int8", scale=0.1, zero_point=3)
    builder.operator("QUANTIZE", ["x"], ["q"])
    for operator, source, kinds in (("CAST", "x", ("int8", "int16", "int32", "int64")), ("QUANTIZE", "x", ("int16",))):
        for kind in kinds:
            scale = 0.5 if operator == "QUANTIZE" else None
            outputs.append(builder.tensor(f"{operator}_{kind}", (64,), kind, scale=scale))
            builder.operator(operator, [source], [outputs[-1]])
    for operator in ("LOG", "SQRT", "RSQRT", "EXP", "SQUARE"):
        outputs.append(builder.tensor(operator, (64,), "int8", scale=0.05, zero_point=-7))
        builder.operator(operator, ["q"], [outputs[-1]])
    return builder.finish(["x"], outputs)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["stm32f746", "netduinoplus2"])
def test_hostile_numbers_equal_on_core_and_host(board: str) -> None:
    random = np.random.default_rng(34)
    bits = random.integers(0, 1 << 32, (3, 64), np.uint32).view(np.float32)
    extremes = np.resize(_FLOATS, (1, 64))
    model = from_tflite(_all_casts(), "casts")
    with utvm.open("host") as host, utvm.open(board, kind="virtual") as core:
        host_model, core_model = host.load(model), core.load(model)
        for numbers in (*extremes, *bits):
            for host_output, core_output in zip(
                host_model.run(numbers).outputs, core_model.run(numbers).outputs, strict=True
            ):
                np.testing.assert_array_equal(host_output, core_output)
