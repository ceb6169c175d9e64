# SPDX-License-Identifier: Apache-2.0
"""Weights of 8 bits for real numbers, against the arithmetic of TensorFlow Lite's kernels, written in numpy.

TensorFlow Lite Micro refuses such layers, so that no kernel of its answers here.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_library import HostLibrary
from programs import answers_of, make_program
from tflite_suite import Case

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError

RANDOM = np.random.default_rng(16)
Array = np.ndarray[Any, Any]


def _away(values: Array) -> Array:
    """Round halves away from zero."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def _quantised(row: Array, symmetric: bool) -> tuple[Array, np.float32, int]:
    """Quantise numbers as ``PortableSymmetricQuantizeFloats`` and ``PortableAsymmetricQuantizeFloats`` do."""
    if symmetric:
        size = np.float32(max(abs(row.min()), abs(row.max())))
        if size == 0:
            return np.zeros(row.shape, np.int64), np.float32(1), 0
        steps = _away(row * (np.float32(127) / size))
        return np.clip(steps, -127, 127).astype(np.int64), size / np.float32(127), 0
    low, high = min(0.0, float(row.min())), max(0.0, float(row.max()))
    if low == high:
        return np.zeros(row.shape, np.int64), np.float32(1), 0
    scale = (high - low) / 255.0
    from_low, from_high = -128 - low / scale, 127 - high / scale
    exact = from_low if 128 + abs(low / scale) < 127 + abs(high / scale) else from_high
    zero = int(_away(np.clip(exact, -128, 127)))
    inverse = np.float32(1) / np.float32(scale)
    steps = _away(np.float32(zero) + row * inverse)
    return np.clip(steps, -128, 127).astype(np.int64), np.float32(scale), zero


def _dense(rows: Array, weights: Array, scales: Array, bias: Array, symmetric: bool) -> Array:
    answers = []
    for row in rows:
        numbers, scale, zero = _quantised(row, symmetric)
        sums = (weights.astype(np.int64) @ (numbers - zero)).astype(np.float32)
        answers.append(sums * (scale * scales) + bias)
    return np.array(answers, np.float32)


def _convolved(images: Array, weights: Array, scales: Array, bias: Array, depthwise: bool) -> Array:
    """Return a convolution without padding, by OHWI weights or 1HWO ones."""
    each = scales.size > 1
    rows, columns = weights.shape[1:3]
    height, width = images.shape[1] - rows + 1, images.shape[2] - columns + 1
    channels = weights.shape[3] if depthwise else weights.shape[0]
    answers = np.zeros((len(images), height, width, channels), np.float32)
    for batch, image in enumerate(images):
        numbers, scale, zero = _quantised(image.ravel(), not each)
        numbers = numbers.reshape(image.shape) - zero
        for y, x, c in np.ndindex(height, width, channels):
            window = numbers[y : y + rows, x : x + columns]
            own = weights[0, :, :, c] * window[:, :, c] if depthwise else weights[c] * window
            total = np.float32(own.astype(np.int64).sum())
            real = total * scales[c] * scale if each else total * (scale * scales[0])
            answers[batch, y, x, c] = real + bias[c]
    return answers


def _model(operator: str, data: tuple[int, ...], weights: Array, result: tuple[int, ...], **how: Any) -> bytes:
    scales, axis = how.pop("scales"), how.pop("axis", 0)
    builder = Builder()
    builder.tensor("x", data, "float32")
    builder.tensor("w", weights.shape, "int8", weights, scale=scales, axis=axis)
    builder.tensor("b", (result[-1],), "float32", how.pop("bias"))
    builder.tensor("y", result, "float32")
    builder.operator(operator, ["x", "w", "b"], ["y"], **how)
    return builder.finish(["x"], ["y"])


def _run(content: bytes, data: Array, directory: Path) -> Array:
    (answer,) = HostLibrary(compile_model(from_tflite(content, "m")), directory)(data)
    return answer


def _draw(shape: tuple[int, ...]) -> Array:
    """Return real numbers; the first batch is on one side of zero, and the second is nothing but zeros."""
    data = RANDOM.normal(0, 2, shape).astype(np.float32)
    data[0] = np.abs(data[0]) + 1
    if shape[0] > 1:
        data[1] = 0
    return data


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_dense_layers_quantise_each_row(asymmetric: bool, tmp_path: Path) -> None:
    weights, bias = RANDOM.integers(-127, 128, (5, 11)).astype(np.int8), RANDOM.normal(0, 1, 5).astype(np.float32)
    scales, data = np.float32([0.02]), _draw((4, 11))
    how = {"scales": scales, "bias": bias, "asymmetric_quantize_inputs": asymmetric}
    answer = _run(_model("FULLY_CONNECTED", data.shape, weights, (4, 5), **how), data, tmp_path)
    expected = _dense(data, weights, scales, bias, not asymmetric)
    np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-6)
    # A float layer of the same weights is something else, or nothing would be shown.
    real = data @ (weights * scales[0]).T + bias
    assert np.abs(real - expected).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["each channel", "one scale", "depthwise"])
def test_convolutions_quantise_each_image(kind: str, tmp_path: Path) -> None:
    depthwise = kind == "depthwise"
    shape = (1, 3, 2, 4) if depthwise else (5, 3, 2, 4)
    channels = 4 if depthwise else 5
    weights, bias = RANDOM.integers(-127, 128, shape).astype(np.int8), RANDOM.normal(0, 1, channels)
    scales = RANDOM.uniform(0.005, 0.03, 1 if kind == "one scale" else channels).astype(np.float32)
    data, result = _draw((3, 6, 5, 4)), (3, 4, 4, channels)
    how = {"scales": scales, "bias": bias, "axis": 3 if depthwise else 0, "padding": "VALID"}
    operator = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    answer = _run(_model(operator, data.shape, weights, result, **how), data, tmp_path)
    expected = _convolved(data, weights, scales, bias.astype(np.float32), depthwise)
    np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_what_is_padded_counts_as_zero(tmp_path: Path) -> None:
    weights, data = np.ones((2, 3, 3, 1), np.int8), np.full((1, 2, 2, 1), 5, np.float32)
    how = {"scales": np.float32([1, 0.5]), "bias": np.zeros(2), "padding": "SAME"}
    answer = _run(_model("CONV_2D", data.shape, weights, (1, 2, 2, 2), **how), data, tmp_path)
    np.testing.assert_allclose(answer, np.broadcast_to(np.float32([20, 10]), (1, 2, 2, 2)), rtol=1e-6)


def _rows(rows: Array, symmetric: bool) -> Array:
    """Return rows as what they are once they have been quantised: ``scale * (number - zero point)``."""
    parts = [_quantised(row, symmetric) for row in rows]
    return np.array([scale * (numbers - zero).astype(np.float32) for numbers, scale, zero in parts])


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_matrix_products_quantise_each_row_of_each_batch(asymmetric: bool, turned: bool, tmp_path: Path) -> None:
    weights, data = RANDOM.integers(-127, 128, (2, 1, 11, 5)).astype(np.int8), _draw((3, 4, 11))
    builder = Builder()
    builder.tensor("x", (3, 11, 4) if turned else data.shape, "float32")
    builder.tensor("w", weights.shape, "int8", weights, scale=0.02)
    builder.tensor("y", (2, 3, 4, 5), "float32")
    builder.operator(
        "BATCH_MATMUL", ["x", "w"], ["y"], adj_x=turned, adj_y=False, asymmetric_quantize_inputs=asymmetric
    )
    given = data.transpose(0, 2, 1) if turned else data
    answer = _run(builder.finish(["x"], ["y"]), given, tmp_path)
    real = _rows(data.reshape(12, 11), not asymmetric).reshape(data.shape)
    np.testing.assert_allclose(answer, real @ (weights * np.float32(0.02)), rtol=1e-5, atol=1e-5)


def _streamed(content: bytes, inputs: list[Array], directory: Path) -> list[Array]:
    """Run a model on one input after the other, with what it keeps."""
    case, libraries = Case("m", "m", content, [([each], []) for each in inputs]), {}
    libraries["m"] = compile_model(from_tflite(content, "m"))
    (answers,) = answers_of([case], libraries, make_program([case], libraries, directory)[0])
    assert not isinstance(answers, str), answers
    return [answer for (answer,) in answers]


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_filters_that_remember_do_so_in_floats(asymmetric: bool, tmp_path: Path) -> None:
    batches, depth, filters, memory = 2, 7, 6, 3
    features, times = (RANDOM.integers(-127, 128, (filters, each)).astype(np.int8) for each in (depth, memory))
    bias = RANDOM.normal(0, 1, 3).astype(np.float32)
    builder = Builder()
    builder.tensor("x", (batches, depth), "float32")
    builder.tensor("f", features.shape, "int8", features, scale=0.01)
    builder.tensor("t", times.shape, "int8", times, scale=0.02)
    builder.tensor("b", bias.shape, "float32", bias)
    builder.tensor("s", (batches, filters * memory), "float32", variable=True)
    builder.tensor("y", (batches, 3), "float32")
    builder.operator("SVDF", ["x", "f", "t", "b", "s"], ["y"], rank=2, asymmetric_quantize_inputs=asymmetric)
    inputs = [_draw((batches, depth)) for _ in range(4)]
    kept = np.zeros((batches, filters, memory), np.float32)
    for data, answer in zip(inputs, _streamed(builder.finish(["x"], ["y"]), inputs, tmp_path), strict=True):
        newest = _rows(data, not asymmetric) @ (features.T * np.float32(0.01))
        kept = np.concatenate([kept[:, :, 1:], newest[:, :, None]], axis=2)
        sums = (kept * (times * np.float32(0.02))).sum(axis=2)
        expected = sums.reshape(batches, 3, 2).sum(axis=2) + bias
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_recurrent_layer_is_quantised_in_each_step(asymmetric: bool, tmp_path: Path) -> None:
    batches, steps, depth, units = 2, 3, 5, 4
    builder = Builder()
    builder.tensor("x", (batches, steps, depth), "float32")
    arrays, names = [], []
    for place, width in enumerate([depth] * 4 + [units] * 4):
        scale = np.float32(0.004 + 0.001 * place)
        array = RANDOM.integers(-127, 128, (units, width)).astype(np.int8)
        names.append(builder.tensor(f"w{place}", array.shape, "int8", array, scale=scale))
        arrays.append(array * scale)
    biases = RANDOM.normal(0, 1, (4, units)).astype(np.float32)
    offsets = [builder.tensor(f"b{place}", (units,), "float32", each) for place, each in enumerate(biases)]
    states = [builder.tensor(name, (batches, units), "float32", variable=True) for name in ("h", "c")]
    builder.tensor("y", (batches, steps, units), "float32")
    operands = ["x", *names, *[None] * 3, *offsets, *[None] * 2, *states, *[None] * 4]
    options = {"fused_activation_function": "TANH", "cell_clip": 0.9, "asymmetric_quantize_inputs": asymmetric}
    builder.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, ["y"], **options)
    inputs = [_draw((batches, steps, depth)) for _ in range(2)]
    hidden = cell = np.zeros((batches, units), np.float32)
    for data, answer in zip(inputs, _streamed(builder.finish(["x"], ["y"]), inputs, tmp_path), strict=True):
        for step in range(steps):
            entered, last = _rows(data[:, step], not asymmetric), _rows(hidden, not asymmetric)
            sums = [entered @ arrays[each].T + last @ arrays[4 + each].T + biases[each] for each in range(4)]
            first, forget, out = (1 / (1 + np.exp(-sums[each])) for each in (0, 1, 3))
            cell = np.clip(forget * cell + first * np.tanh(sums[2]), -0.9, 0.9)
            hidden = out * np.tanh(cell)
            np.testing.assert_allclose(answer[:, step], hidden, rtol=1e-4, atol=1e-5)


def test_what_is_not_computed_so_is_refused() -> None:
    weights = np.ones((1, 3, 3, 2), np.int8)
    how = {"scales": np.float32([0.5]), "bias": np.zeros(2), "padding": "VALID"}
    with pytest.raises(CompileError, match="one scale for all channels are not supported"):
        compile_model(from_tflite(_model("DEPTHWISE_CONV_2D", (1, 4, 4, 2), weights, (1, 2, 2, 2), **how), "m"))
