# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 CNN is the network of its README, and reads weight files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from models.cifar10_cnn.network import IMAGE, SHAPES, image_inputs, network, random_parameters, read_parameters
from models.tflite_reference import tflite_micro
from utvm.compiler import compile_model, from_tflite
from utvm.errors import ConfigError

Integers = npt.NDArray[np.int64]


def _shift_right(sums: Integers, bits: int) -> Integers:
    """Divide by 2**bits in two steps, like gemmlowp: first round halves up, then away from zero."""
    half = (sums + 1) >> 1
    bits -= 1
    remainder = half & ((1 << bits) - 1)
    result = (half >> bits) + (remainder > ((1 << (bits - 1)) - 1) + (half < 0))
    return np.clip(result, -128, 127)


def _windows(image: Integers, size: int, before: int, after: int, stride: int, fill: int) -> Integers:
    padded = np.pad(image, ((before, after), (before, after), (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (0, 1))[::stride, ::stride]


def _reference_logits(parameters: dict[str, Integers], image: Integers) -> Integers:
    """Compute the network of the README in 64-bit integers."""
    for number in range(3):
        columns = _windows(image, 5, 2, 2, 1, 0)
        sums = np.einsum("hwcij,oijc->hwo", columns, parameters[f"conv{number}_weight"])
        image = np.maximum(_shift_right(sums + parameters[f"conv{number}_bias"], 9), 0)
        if number == 0:
            image = _windows(image, 3, 0, 1, 2, -128).max((3, 4))
        else:
            total = _windows(image, 3, 0, 1, 2, 0).sum((3, 4))
            count = _windows(np.ones_like(image), 3, 0, 1, 2, 0).sum((3, 4))
            image = (2 * total + count) // (2 * count)
    sums = parameters["dense0_weight"] @ image.ravel() + (parameters["dense0_bias"] << 3)
    return _shift_right(sums, 5)


def _images(count: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, (count, *IMAGE), np.uint8)


@pytest.mark.parametrize("seed", [0, 1])
def test_network_equals_the_readme(seed: int) -> None:
    parameters = dict(random_parameters(seed))
    inputs = image_inputs(parameters, _images(6))
    expected = [_reference_logits(parameters, image.astype(np.int64)) for image in inputs]
    for (logits,), golden in zip(
        tflite_micro(network(parameters), [[image[np.newaxis]] for image in inputs]), expected, strict=True
    ):
        np.testing.assert_array_equal(logits[0], golden)
    assert len({tuple(logits) for logits in expected}) == len(expected)


def test_multiply_accumulates_equal_the_blog_post() -> None:
    library = compile_model(from_tflite(network(random_parameters()), "cifar10_cnn"))
    # Output pixels times channels times products per sum.
    macs_by_layer = [32 * 32 * 32 * 75, 16 * 16 * 32 * 800, 8 * 8 * 64 * 800, 10 * 1024]
    assert [call.macs for call in library.calls if call.macs] == macs_by_layer
    assert sum(macs_by_layer) == 12_298_240


def test_image_without_its_mean_saturates() -> None:
    parameters = {"mean_data": np.full(IMAGE, 140)}
    images = np.stack([np.full(IMAGE, value, np.uint8) for value in (0, 140, 255)])
    assert image_inputs(parameters, images)[:, 0, 0, 0].tolist() == [-128, 0, 115]


def _write_weights(path: Path, change: dict[str, Any]) -> Path:
    content = {name: array.ravel().tolist() for name, array in random_parameters(7).items()}
    path.write_text(json.dumps({name: value for name, value in {**content, **change}.items() if value != "gone"}))
    return path


def test_weights_are_read_flat_or_nested(tmp_path: Path) -> None:
    parameters = random_parameters(7)
    nested = {"conv1_weight": parameters["conv1_weight"].tolist(), "mean_data": parameters["mean_data"].tolist()}
    for change in ({}, nested):
        read = read_parameters(_write_weights(tmp_path / "weights.json", change))
        assert {name: array.shape for name, array in read.items()} == SHAPES
        assert network(read) == network(parameters) != network(random_parameters(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv1_bias": "gone"}, "must hold mean_data"),
        ({"conv3_bias": [1]}, "but holds mean_data"),
        ({"conv1_bias": [0] * 31}, "conv1_bias must be 32 integers of shape [32], not int64 of [31]"),
        ({"conv0_weight": [[1, 2], [3]]}, "conv0_weight must be 2400 integers"),
        ({"dense0_bias": [0.5] * 10}, "dense0_bias must be 10 integers of shape [10], not float64"),
        ({"dense0_bias": ["1"] * 10}, "dense0_bias must be 10 integers"),
        ({"dense0_bias": [True] * 10}, "dense0_bias must be 10 integers"),
        ({"dense0_bias": None}, "dense0_bias must be 10 integers"),
        ({"dense0_bias": [1 << 70] * 10}, "dense0_bias must be 10 integers"),
        ({"conv0_bias": [1 << 28] * 32}, "conv0_bias has numbers that are not from -268435456 to 268435455"),
        ({"dense0_weight": [128] * 10240}, "dense0_weight has numbers that are not from -128 to 127"),
        ({"mean_data": [-1] * 3072}, "mean_data has numbers that are not from 0 to 255"),
    ],
)
def test_invalid_weights_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = _write_weights(tmp_path / "weights.json", change)
    with pytest.raises(ConfigError) as refused:
        read_parameters(path)
    assert str(path) in refused.value.message
    assert message in refused.value.message


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe", b"{", b"[" * 100_000])
def test_other_file_is_refused_as_weights(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"weights\.json"):
        read_parameters(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_parameters(tmp_path / "none.json")
