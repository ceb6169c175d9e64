# SPDX-License-Identifier: Apache-2.0
"""8-bit weights with float activations, against the arithmetic of TensorFlow Lite's kernels in numpy.

TensorFlow Lite Micro refuses such layers, so its kernels are no reference here.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_library import HostLibrary
from programs import make_program, run_program
from tflite_suite import Case

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError

RANDOM = np.random.default_rng(16)
Array = np.ndarray[Any, Any]


def round_half_away(values: Array) -> Array:
    """Round halves away from zero."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def quantise_row(row: Array, symmetric: bool) -> tuple[Array, np.float32, int]:
    """Quantise numbers like ``PortableSymmetricQuantizeFloats`` and ``PortableAsymmetricQuantizeFloats``."""
    if symmetric:
        size = np.float32(max(abs(row.min()), abs(row.max())))
        if size == 0:
            return np.zeros(row.shape, np.int64), np.float32(1), 0
        steps = round_half_away(row * (np.float32(127) / size))
        return np.clip(steps, -127, 127).astype(np.int64), size / np.float32(127), 0
    low, high = min(0.0, float(row.min())), max(0.0, float(row.max()))
    if low == high:
        return np.zeros(row.shape, np.int64), np.float32(1), 0
    scale = (high - low) / 255.0
    from_low, from_high = -128 - low / scale, 127 - high / scale
    exact = from_low if 128 + abs(low / scale) < 127 + abs(high / scale) else from_high
    zero = int(round_half_away(np.clip(exact, -128, 127)))
    inverse = np.float32(1) / np.float32(scale)
    steps = round_half_away(np.float32(zero) + row * inverse)
    return np.clip(steps, -128, 127).astype(np.int64), np.float32(scale), zero


def _dense(rows: Array, weights: Array, scales: Array, bias: Array, symmetric: bool) -> Array:
    outputs = []
    for row in rows:
        numbers, scale, zero = quantise_row(row, symmetric)
        sums = (weights.astype(np.int64) @ (numbers - zero)).astype(np.float32)
        outputs.append(sums * (scale * scales) + bias)
    return np.array(outputs, np.float32)


def _convolve(images: Array, weights: Array, scales: Array, bias: Array, depthwise: bool) -> Array:
    """A convolution without padding, with OHWI or 1HWO weights."""
    per_channel = scales.size > 1
    rows, columns = weights.shape[1:3]
    height, width = images.shape[1] - rows + 1, images.shape[2] - columns + 1
    channels = weights.shape[3] if depthwise else weights.shape[0]
    outputs = np.zeros((len(images), height, width, channels), np.float32)
    for batch, image in enumerate(images):
        numbers, scale, zero = quantise_row(image.ravel(), not per_channel)
        numbers = numbers.reshape(image.shape) - zero
        for y, x, c in np.ndindex(height, width, channels):
            window = numbers[y : y + rows, x : x + columns]
            products = weights[0, :, :, c] * window[:, :, c] if depthwise else weights[c] * window
            total = np.float32(products.astype(np.int64).sum())
            real = total * scales[c] * scale if per_channel else total * (scale * scales[0])
            outputs[batch, y, x, c] = real + bias[c]
    return outputs


def _model(operator: str, data: tuple[int, ...], weights: Array, result: tuple[int, ...], **options: Any) -> bytes:
    scales, axis = options.pop("scales"), options.pop("axis", 0)
    builder = Builder()
    builder.tensor("x", data, "float32")
    builder.tensor("w", weights.shape, "int8", weights, scale=scales, axis=axis)
    builder.tensor("b", (result[-1],), "float32", options.pop("bias"))
    builder.tensor("y", result, "float32")
    builder.operator(operator, ["x", "w", "b"], ["y"], **options)
    return builder.finish(["x"], ["y"])


def _run(content: bytes, data: Array, directory: Path) -> Array:
    (output,) = HostLibrary(compile_model(from_tflite(content, "m")), directory)(data)
    return output


def random_batches(shape: tuple[int, ...]) -> Array:
    """Random floats; the first batch is positive, and the second is all zeros."""
    data = RANDOM.normal(0, 2, shape).astype(np.float32)
    data[0] = np.abs(data[0]) + 1
    if shape[0] > 1:
        data[1] = 0
    return data


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_dense_layers_quantise_each_row(asymmetric: bool, tmp_path: Path) -> None:
    weights, bias = RANDOM.integers(-127, 128, (5, 11)).astype(np.int8), RANDOM.normal(0, 1, 5).astype(np.float32)
    scales, data = np.float32([0.02]), random_batches((4, 11))
    options = {"scales": scales, "bias": bias, "asymmetric_quantize_inputs": asymmetric}
    output = _run(_model("FULLY_CONNECTED", data.shape, weights, (4, 5), **options), data, tmp_path)
    expected = _dense(data, weights, scales, bias, not asymmetric)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)
    # A float layer with the same weights differs, so the test can fail.
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
    data, result = random_batches((3, 6, 5, 4)), (3, 4, 4, channels)
    options = {"scales": scales, "bias": bias, "axis": 3 if depthwise else 0, "padding": "VALID"}
    operator = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    output = _run(_model(operator, data.shape, weights, result, **options), data, tmp_path)
    expected = _convolve(data, weights, scales, bias.astype(np.float32), depthwise)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_padding_counts_as_zero(tmp_path: Path) -> None:
    weights, data = np.ones((2, 3, 3, 1), np.int8), np.full((1, 2, 2, 1), 5, np.float32)
    options = {"scales": np.float32([1, 0.5]), "bias": np.zeros(2), "padding": "SAME"}
    output = _run(_model("CONV_2D", data.shape, weights, (1, 2, 2, 2), **options), data, tmp_path)
    np.testing.assert_allclose(output, np.broadcast_to(np.float32([20, 10]), (1, 2, 2, 2)), rtol=1e-6)


def dequantised_rows(rows: Array, symmetric: bool) -> Array:
    """Rows after quantisation: ``scale * (number - zero point)``."""
    parts = [quantise_row(row, symmetric) for row in rows]
    return np.array([scale * (numbers - zero).astype(np.float32) for numbers, scale, zero in parts])


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_matrix_products_quantise_each_row(asymmetric: bool, transposed: bool, tmp_path: Path) -> None:
    weights, data = RANDOM.integers(-127, 128, (2, 1, 11, 5)).astype(np.int8), random_batches((3, 4, 11))
    builder = Builder()
    builder.tensor("x", (3, 11, 4) if transposed else data.shape, "float32")
    builder.tensor("w", weights.shape, "int8", weights, scale=0.02)
    builder.tensor("y", (2, 3, 4, 5), "float32")
    builder.operator(
        "BATCH_MATMUL", ["x", "w"], ["y"], adj_x=transposed, adj_y=False, asymmetric_quantize_inputs=asymmetric
    )
    inputs = data.transpose(0, 2, 1) if transposed else data
    output = _run(builder.finish(["x"], ["y"]), inputs, tmp_path)
    real = dequantised_rows(data.reshape(12, 11), not asymmetric).reshape(data.shape)
    np.testing.assert_allclose(output, real @ (weights * np.float32(0.02)), rtol=1e-5, atol=1e-5)


def run_stream(content: bytes, inputs: list[Array], directory: Path) -> list[Array]:
    """Run a model on several inputs in turn, with its state."""
    case, libraries = Case("m", "m", content, [([array], []) for array in inputs]), {}
    libraries["m"] = compile_model(from_tflite(content, "m"))
    (results,) = run_program([case], libraries, make_program([case], libraries, directory)[0])
    assert not isinstance(results, str), results
    return [output for (output,) in results]


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_svdf_state_is_float(asymmetric: bool, tmp_path: Path) -> None:
    batches, depth, filters, memory = 2, 7, 6, 3
    features, times = (RANDOM.integers(-127, 128, (filters, width)).astype(np.int8) for width in (depth, memory))
    bias = RANDOM.normal(0, 1, 3).astype(np.float32)
    builder = Builder()
    builder.tensor("x", (batches, depth), "float32")
    builder.tensor("f", features.shape, "int8", features, scale=0.01)
    builder.tensor("t", times.shape, "int8", times, scale=0.02)
    builder.tensor("b", bias.shape, "float32", bias)
    builder.tensor("s", (batches, filters * memory), "float32", variable=True)
    builder.tensor("y", (batches, 3), "float32")
    builder.operator("SVDF", ["x", "f", "t", "b", "s"], ["y"], rank=2, asymmetric_quantize_inputs=asymmetric)
    inputs = [random_batches((batches, depth)) for _ in range(4)]
    state = np.zeros((batches, filters, memory), np.float32)
    for data, output in zip(inputs, run_stream(builder.finish(["x"], ["y"]), inputs, tmp_path), strict=True):
        newest = dequantised_rows(data, not asymmetric) @ (features.T * np.float32(0.01))
        state = np.concatenate([state[:, :, 1:], newest[:, :, None]], axis=2)
        sums = (state * (times * np.float32(0.02))).sum(axis=2)
        expected = sums.reshape(batches, 3, 2).sum(axis=2) + bias
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [False, True], ids=["symmetric", "asymmetric"])
def test_recurrent_layer_is_quantised_in_each_step(asymmetric: bool, tmp_path: Path) -> None:
    batches, steps, depth, units = 2, 3, 5, 4
    builder = Builder()
    builder.tensor("x", (batches, steps, depth), "float32")
    arrays, names = [], []
    for index, width in enumerate([depth] * 4 + [units] * 4):
        scale = np.float32(0.004 + 0.001 * index)
        array = RANDOM.integers(-127, 128, (units, width)).astype(np.int8)
        names.append(builder.tensor(f"w{index}", array.shape, "int8", array, scale=scale))
        arrays.append(array * scale)
    biases = RANDOM.normal(0, 1, (4, units)).astype(np.float32)
    offsets = [builder.tensor(f"b{index}", (units,), "float32", bias) for index, bias in enumerate(biases)]
    states = [builder.tensor(name, (batches, units), "float32", variable=True) for name in ("h", "c")]
    builder.tensor("y", (batches, steps, units), "float32")
    operands = ["x", *names, *[None] * 3, *offsets, *[None] * 2, *states, *[None] * 4]
    options = {"fused_activation_function": "TANH", "cell_clip": 0.9, "asymmetric_quantize_inputs": asymmetric}
    builder.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, ["y"], **options)
    inputs = [random_batches((batches, steps, depth)) for _ in range(2)]
    hidden = cell = np.zeros((batches, units), np.float32)
    for data, output in zip(inputs, run_stream(builder.finish(["x"], ["y"]), inputs, tmp_path), strict=True):
        for step in range(steps):
            quantised_input, quantised_hidden = (
                dequantised_rows(data[:, step], not asymmetric),
                dequantised_rows(hidden, not asymmetric),
            )
            sums = [
                quantised_input @ arrays[gate].T + quantised_hidden @ arrays[4 + gate].T + biases[gate]
                for gate in range(4)
            ]
            first, forget, out = (1 / (1 + np.exp(-sums[gate])) for gate in (0, 1, 3))
            cell = np.clip(forget * cell + first * np.tanh(sums[2]), -0.9, 0.9)
            hidden = out * np.tanh(cell)
            np.testing.assert_allclose(output[:, step], hidden, rtol=1e-4, atol=1e-5)


def test_unsupported_layer_is_refused() -> None:
    weights = np.ones((1, 3, 3, 2), np.int8)
    options = {"scales": np.float32([0.5]), "bias": np.zeros(2), "padding": "VALID"}
    with pytest.raises(CompileError, match="one scale for all channels are not supported"):
        compile_model(from_tflite(_model("DEPTHWISE_CONV_2D", (1, 4, 4, 2), weights, (1, 2, 2, 2), **options), "m"))
