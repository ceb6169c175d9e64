# SPDX-License-Identifier: Apache-2.0
"""Constant channels are not computed; results equal TensorFlow Lite Micro, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from utvm.compiler import Library, Target, compile_model, from_tflite
from utvm.compiler.target import ANY, Goal

_SCALE = 0.02
# A channel that training has almost switched off: its sum may wrap around, and is scaled to zero all the same.
_FAINT, _LARGEST = np.float32(1e-12), 2**31 - 1


class _RandomNetwork:
    """A random chain of layers with dead filters, saturated channels and unread inputs."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = Builder()
        height, width, channels = (self.random.integers(least, 9) for least in (4, 4, 2))
        self.shape: tuple[int, ...] = (1, int(height), int(width), int(channels))
        self.zero = int(self.random.choice([-128, 0, 5]))
        self.number = 0
        self.last = self._tensor("x", self.shape, self.zero)
        self.input = (self.last, self.shape)

    def _tensor(self, name: str, shape: tuple[int, ...], zero: int) -> str:
        self.number += 1
        return self.builder.tensor(f"{name}{self.number}", shape, "int8", scale=_SCALE, zero_point=zero)

    def _append(self, operator: str, shape: tuple[int, ...], zero: int, *more: str, **options: Any) -> None:
        name = self._tensor(operator, shape, zero)
        self.builder.operator(operator, [self.last, *more], [name], **options)
        self.last, self.shape, self.zero = name, shape, zero

    def _constant(self, array: npt.NDArray[Any], **quantisation: Any) -> str:
        self.number += 1
        return self.builder.tensor(f"c{self.number}", array.shape, str(array.dtype), array, **quantisation)

    def _weighted(self, operator: str, weights: npt.NDArray[Any], shape: tuple[int, ...], **options: Any) -> None:
        axis = 3 if operator == "DEPTHWISE_CONV_2D" else 0
        outputs = weights.shape[axis]
        filters = np.moveaxis(weights, axis, 0)
        filters[self.random.random(outputs) < 0.35] = 0
        if axis == 0:
            weights[..., self.random.random(weights.shape[-1]) < 0.2] = 0
        bias = self.random.integers(-3000, 3000, outputs).astype(np.int32)
        bias[self.random.random(outputs) < 0.2] = self.random.choice([-(2**24), 2**24])
        scales = self.random.uniform(0.002, 0.02, outputs).astype(np.float32)
        faint = self.random.random(outputs) < 0.1
        bias[faint], scales[faint] = _LARGEST, _FAINT
        # As in mcunet-in3, whose converter folded a negative factor into the scales.
        scales[self.random.random(outputs) < 0.1] *= -1
        self._append(
            operator,
            shape,
            int(self.random.choice([-128, -128, 7])),
            self._constant(weights, scale=scales, axis=axis),
            self._constant(bias, scale=np.float32(_SCALE) * scales),
            fused_activation_function=str(self.random.choice(["NONE", "RELU", "RELU6"])),
            **options,
        )

    def layer(self) -> None:
        _, height, width, channels = self.shape
        kind = self.random.choice(["pointwise", "spatial", "depthwise", "pool", "logistic", "residual", "pad"])
        padding = str(self.random.choice(["SAME", "VALID"])) if min(height, width) > 3 else "SAME"
        size = (height, width) if padding == "SAME" else (height - 2, width - 2)
        if kind in ("pointwise", "spatial"):
            extent = 1 if kind == "pointwise" else 3
            outputs = int(self.random.integers(2, 10))
            weights = self.random.integers(-127, 128, (outputs, extent, extent, channels)).astype(np.int8)
            shape = (1, *(size if extent == 3 else (height, width)), outputs)
            self._weighted("CONV_2D", weights, shape, padding=padding, stride_h=1, stride_w=1)
        elif kind == "depthwise":
            outputs = channels * int(self.random.integers(1, 3))
            weights = self.random.integers(-127, 128, (1, 3, 3, outputs)).astype(np.int8)
            self._weighted(
                "DEPTHWISE_CONV_2D", weights, (1, *size, outputs), padding=padding, stride_h=1, stride_w=1,
                depth_multiplier=outputs // channels,
            )  # fmt: skip
        elif kind == "pool":
            operator = str(self.random.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
            options = {"filter_width": 3, "filter_height": 3, "stride_w": 1, "stride_h": 1}
            self._append(operator, (1, *size, channels), self.zero, padding=padding, **options)
        elif kind == "logistic":
            name = self.builder.tensor(f"l{self.number}", self.shape, "int8", scale=1 / 256, zero_point=-128)
            self.builder.operator("LOGISTIC", [self.last], [name])
            self.last, self.zero = name, -128
            self._append("QUANTIZE", self.shape, -128)
        elif kind == "pad":
            self.pad()
        else:
            before, zero = self.last, self.zero
            weights = self.random.integers(-127, 128, (channels, 1, 1, channels)).astype(np.int8)
            self._weighted("CONV_2D", weights, self.shape, padding="SAME", stride_h=1, stride_w=1)
            self._append("ADD", self.shape, zero, before, fused_activation_function="NONE")

    def pad(self) -> None:
        """Add a rim of a pixel, as converters do that know no other padding."""
        _, height, width, channels = self.shape
        rim = self._constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
        self._append("PAD", (1, height + 2, width + 2, channels), self.zero, rim)

    def finish(self) -> bytes:
        _, height, width, channels = self.shape
        if self.random.random() < 0.5:
            axes = self._constant(np.array([1, 2], np.int32))
            self._append("MEAN", (1, channels), self.zero, axes, keep_dims=False)
        else:
            shape = (1, height * width * channels)
            self._append("RESHAPE", shape, self.zero, self._constant(np.array(shape, np.int32)))
        weights = self.random.integers(-127, 128, (4, self.shape[-1])).astype(np.int8)
        self._weighted("FULLY_CONNECTED", weights, (1, 4))
        return self.builder.finish([self.input[0]], [self.last])


def _check(content: bytes, shape: tuple[int, ...], folder: Path, target: Target = ANY) -> Library:
    """Compare a network with the reference kernels."""
    library = compile_model(from_tflite(content, "drawn"), target=target)
    compiled_library = HostLibrary(library, folder)
    generator = np.random.default_rng(3)
    images = [np.full(shape, -128), np.full(shape, 127), *generator.integers(-128, 128, (6, *shape))]
    samples = [[image.astype(np.int8)] for image in images]
    for sample, (expected_output,) in zip(samples, tflite_micro(content, samples), strict=True):
        np.testing.assert_array_equal(compiled_library(*sample)[0], expected_output)
    return library


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < 4 else pytest.mark.nightly) for seed in range(200)]
)
def test_random_networks_equal_the_reference(seed: int, tmp_path: Path) -> None:
    network = _RandomNetwork(seed)
    for _ in range(int(network.random.integers(2, 7))):
        network.layer()
    content = network.finish()
    goal: Goal = "flash" if seed % 4 == 3 else "balance"
    _check(content, network.input[1], tmp_path, Target(extensions=("dsp",) * (seed % 2), goal=goal))


def _convolution(
    network: _RandomNetwork,
    kernel: npt.NDArray[Any],
    bias: list[int],
    *,
    depthwise: bool = False,
    padding: str = "SAME",
) -> None:
    outputs = len(bias)
    scales = np.where(np.array(bias) == _LARGEST, _FAINT, 0.01).astype(np.float32)
    axis = 3 if depthwise else 0
    rim = kernel.shape[1] - 1 if padding == "VALID" else 0
    network._append(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
        (1, *(extent - rim for extent in network.shape[1:3]), outputs),
        -128,
        network._constant(kernel.astype(np.int8), scale=scales, axis=axis),
        network._constant(np.array(bias, np.int32), scale=np.float32(_SCALE) * scales),
        padding=padding,
        stride_h=1,
        stride_w=1,
        fused_activation_function="RELU",
    )


def test_constant_channels_are_not_computed(tmp_path: Path) -> None:
    """Of eight filters, one is live, three are dead, two always clipped, one saturates, and one is unread."""
    network = _RandomNetwork(0)
    _, height, width, channels = network.shape
    filters = np.ones((8, 1, 1, channels))
    filters[1:4] = 0
    saturated = 2**24
    _convolution(network, filters, [0, 0, 0, 0, -saturated, -saturated, saturated, 0])
    # The padding differs from the saturated channel, so its border is computed.
    _convolution(network, np.ones((1, 3, 3, 8)), [0] * 8, depthwise=True)
    last = np.ones((2, 1, 1, 8))
    last[..., 7] = 0
    _convolution(network, last, [5, 6])
    library = _check(network.builder.finish([network.input[0]], [network.last]), network.input[1], tmp_path)
    assert [(removal.removed, removal.channels) for removal in library.removals] == [(6, 8), (6, 8)]
    pixels = height * width
    assert [call.macs for call in library.calls] == [pixels * channels * 2, pixels * 9 * 2, pixels * 2 * 2]


@pytest.mark.parametrize("extent", [1, 3])
def test_constant_channel_with_padding_is_computed(extent: int, tmp_path: Path) -> None:
    """Around the image a convolution reads the zero point, not the constant."""
    network = _RandomNetwork(0)
    channels = network.shape[3]
    filters = np.ones((4, 1, 1, channels))
    filters[2:] = 0
    # The third channel is 40 everywhere, the fourth is the zero point.
    _convolution(network, filters, [0, 0, 16800, -5])
    _convolution(network, np.ones((2, extent, extent, 4)), [0, 5])
    library = _check(network.builder.finish([network.input[0]], [network.last]), network.input[1], tmp_path)
    assert [removal.removed for removal in library.removals] == [2 if extent == 1 else 1]


def test_faint_channels_are_not_computed_behind_a_padding(tmp_path: Path) -> None:
    """MCUNet's files have both: paddings as operators, and biases that int32 only just holds."""
    network = _RandomNetwork(0)
    _, height, width, channels = network.shape
    _convolution(network, np.ones((8, 1, 1, channels)), [0, 1, 2, 3, 4, _LARGEST, _LARGEST, _LARGEST])
    network.pad()
    _convolution(network, np.ones((1, 3, 3, 8)), [0] * 7 + [_LARGEST], depthwise=True, padding="VALID")
    _convolution(network, np.ones((2, 1, 1, 8)), [5, 6])
    content = network.builder.finish([network.input[0]], [network.last])
    library = _check(content, network.input[1], tmp_path, Target(extensions=("dsp",)))
    assert [removal.removed for removal in library.removals] == [3, 3]
    pixels = height * width
    assert [call.macs for call in library.calls] == [pixels * channels * 5, pixels * 9 * 5, pixels * 5 * 2]
    assert all(call.kernel.startswith("DSP extension") for call in library.calls)
