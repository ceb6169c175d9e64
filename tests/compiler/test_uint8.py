# SPDX-License-Identifier: Apache-2.0
"""Old uint8 models (before 2020), against the arithmetic of their kernels in numpy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_library import HostLibrary
from tflite_draw import Draw, Spec
from tflite_layers import LAYERS
from tflite_micro.python.tflite_micro import runtime

from models.tflite_writer import Builder
from utvm.compiler import Library, compile_model, from_tflite

RANDOM = np.random.default_rng(16)
Array = np.ndarray[Any, Any]
SCALES = {"x": 0.043, "w": 0.0117, "y": 0.31}
ZEROS = {"x": 113, "w": 141, "y": 97}


def multiply(sums: Array, real: float) -> Array:
    """Multiply by a real number as in gemmlowp: rounded to 31 bits, and again after the shift."""
    fraction, exponent = np.frexp(real)
    multiplier, left, right = round(fraction * 2**31), max(int(exponent), 0), max(-int(exponent), 0)
    assert multiplier < 2**31
    high = ((sums.astype(np.int64) << left) * multiplier + 2**30) >> 31
    rest, half = high & ((1 << right) - 1), ((1 << right) - 1 >> 1) + (high < 0)
    return (high >> right) + (rest > half)


def requantise(sums: Array, bias: Array, activation: str) -> Array:
    real = float(np.float32(SCALES["x"]) * np.float32(SCALES["w"])) / float(np.float32(SCALES["y"]))
    low = ZEROS["y"] if activation == "RELU" else 0
    return np.clip(multiply(sums + bias, real) + ZEROS["y"], low, 255).astype(np.uint8)


def _model(operator: str, shapes: dict[str, tuple[int, ...]], weights: Array, bias: Array, **options: Any) -> bytes:
    builder = Builder()
    for name, data in (("x", None), ("w", weights), ("y", None)):
        builder.tensor(name, shapes[name], "uint8", data, scale=SCALES[name], zero_point=ZEROS[name])
    builder.tensor("b", bias.shape, "int32", bias, scale=SCALES["x"] * SCALES["w"])
    builder.operator(operator, ["x", "w", "b"], ["y"], **options)
    return builder.finish(["x"], ["y"])


def compile_content(content: bytes) -> Library:
    library = compile_model(from_tflite(content, "m"))
    assert not library.leftovers
    return library


def convolution_sums(image: Array, weights: Array, stride: int, depthwise: bool) -> Array:
    """Sums of a convolution with padding on all sides."""
    rows, columns = weights.shape[1:3]
    padded = np.pad(image[0].astype(np.int64) - ZEROS["x"], ((1, 1), (1, 1), (0, 0)))
    signed = weights.astype(np.int64) - ZEROS["w"]
    height, width = ((extent + 2 - 3) // stride + 1 for extent in image.shape[1:3])
    channels = weights.shape[3] if depthwise else weights.shape[0]
    sums = np.zeros((1, height, width, channels), np.int64)
    for y, x, c in np.ndindex(height, width, channels):
        window = padded[y * stride : y * stride + rows, x * stride : x * stride + columns]
        products = signed[0, :, :, c] * window[:, :, c] if depthwise else signed[c] * window
        sums[0, y, x, c] = products.sum()
    return sums


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "activation"), [("CONV_2D", "RELU"), ("DEPTHWISE_CONV_2D", "NONE")])
def test_convolution_with_weight_zero_point(operator: str, activation: str, tmp_path: Path) -> None:
    depthwise = operator == "DEPTHWISE_CONV_2D"
    weights = RANDOM.integers(0, 256, (1, 3, 3, 4) if depthwise else (6, 3, 3, 4)).astype(np.uint8)
    channels = 4 if depthwise else 6
    bias, image = RANDOM.integers(-900, 900, channels), RANDOM.integers(0, 256, (1, 7, 9, 4)).astype(np.uint8)
    shapes = {"x": image.shape, "w": weights.shape, "y": (1, 7, 9, channels)}
    content = _model(operator, shapes, weights, bias, padding="SAME", fused_activation_function=activation)
    (output,) = HostLibrary(compile_content(content), tmp_path)(image)
    expected = requantise(convolution_sums(image, weights, 1, depthwise), bias, activation)
    assert output.tolist() == expected.tolist() and len(np.unique(expected)) > 30


@pytest.mark.slow
def test_uint8_dense_layer_equals_shifted_int8(tmp_path: Path) -> None:
    weights, bias = RANDOM.integers(0, 256, (5, 12)).astype(np.uint8), RANDOM.integers(-900, 900, 5)
    data = RANDOM.integers(0, 256, (1, 12)).astype(np.uint8)
    content = _model("FULLY_CONNECTED", {"x": (1, 12), "w": (5, 12), "y": (1, 5)}, weights, bias)
    builder = Builder()
    lower = weights.astype(np.int16) - 128
    for name, shape, values in (("x", (1, 12), None), ("w", (5, 12), lower), ("y", (1, 5), None)):
        builder.tensor(name, shape, "int8", values, scale=SCALES[name], zero_point=ZEROS[name] - 128)
    builder.tensor("b", (5,), "int32", bias, scale=SCALES["x"] * SCALES["w"])
    builder.operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"])
    signed = builder.finish(["x"], ["y"])
    interpreter = runtime.Interpreter.from_bytes(signed)
    interpreter.set_input((data.astype(np.int16) - 128).astype(np.int8), 0)
    interpreter.invoke()
    expected = interpreter.get_output(0).astype(np.int16) + 128
    (output,) = HostLibrary(compile_content(content), tmp_path)(data)
    assert output.tolist() == expected.tolist()
    folder = tmp_path / "signed"
    folder.mkdir()
    (signed_output,) = HostLibrary(compile_content(signed), folder)((data.astype(np.int16) - 128).astype(np.int8))
    assert (signed_output.astype(np.int16) + 128).tolist() == expected.tolist()


@pytest.mark.slow
def test_averages_round_halves_up(tmp_path: Path) -> None:
    builder = Builder()
    builder.tensor("x", (1, 6, 6, 3), "uint8", scale=0.05, zero_point=128)
    builder.tensor("y", (1, 3, 3, 3), "uint8", scale=0.05, zero_point=128)
    window = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2, "padding": "VALID"}
    builder.operator("AVERAGE_POOL_2D", ["x"], ["y"], **window)
    image = RANDOM.integers(0, 256, (1, 6, 6, 3)).astype(np.uint8)
    (output,) = HostLibrary(compile_content(builder.finish(["x"], ["y"])), tmp_path)(image)
    sums = image.reshape(1, 3, 2, 3, 2, 3).astype(np.int64).sum(axis=(2, 4))
    assert output.tolist() == ((sums + 2) // 4).tolist() and (sums % 4 == 2).any()


@pytest.mark.slow
def test_concatenation_rescales_in_single_precision(tmp_path: Path) -> None:
    builder = Builder()
    known = {"a": (0.05, 10), "b": (0.55, 128), "y": (0.55, 128)}
    for name, (scale, zero) in known.items():
        builder.tensor(name, (1, 512 if name == "y" else 256), "uint8", scale=scale, zero_point=zero)
    builder.operator("CONCATENATION", ["a", "b"], ["y"], axis=-1)
    data = np.arange(256, dtype=np.uint8).reshape(1, 256)
    (output,) = HostLibrary(compile_content(builder.finish(["a", "b"], ["y"])), tmp_path)(data, data)
    factor = np.float32(0.05) * (np.float32(1) / np.float32(0.55))
    reals = data[0].astype(np.float32) * factor + np.float32(-10) * factor
    steps = np.sign(reals) * np.floor(np.abs(reals) + np.float32(0.5)) + 128
    assert output[0].tolist() == [*np.clip(steps, 0, 255).astype(int), *range(256)]


def to_uint8(specs: Sequence[Spec | None]) -> list[Spec | None]:
    """Convert int8 tensors to uint8 tensors with a zero point that is 128 higher."""
    return [
        replace(
            spec,
            dtype="uint8",
            zero=spec.zero + 128,
            data=None if spec.data is None else np.asarray(spec.data).astype(int) + 128,
        )
        if spec is not None and spec.dtype == "int8"
        else spec
        for spec in specs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["ADD", "SUB", "MUL", "SOFTMAX", "MAX_POOL_2D", "RESHAPE", "PAD"])
def test_uint8_operators_equal_shifted_int8(operator: str, tmp_path: Path) -> None:
    draw = Draw(f"{operator}/uint8", "int8")
    layer = LAYERS[operator][0](draw)
    higher = replace(layer, inputs=to_uint8(layer.inputs), outputs=to_uint8(layer.outputs))
    data = [draw.values(spec.shape, spec) for spec in layer.inputs if spec is not None and spec.is_input]
    interpreter = runtime.Interpreter.from_bytes(layer.content(operator))
    for number, array in enumerate(data):
        interpreter.set_input(array, number)
    interpreter.invoke()
    expected = interpreter.get_output(0).astype(np.int16) + 128
    run = HostLibrary(compile_content(higher.content(operator)), tmp_path)
    (output,) = run(*((array.astype(np.int16) + 128).astype(np.uint8) for array in data))
    assert output.tolist() == expected.reshape(output.shape).tolist()
