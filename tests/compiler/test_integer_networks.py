# SPDX-License-Identifier: Apache-2.0
"""Complete int8 networks with random weights equal TensorFlow Lite Micro's reference kernels, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from utvm.compiler import Target, compile_model, from_tflite

_WEIGHT_SCALE = 0.004


class _Network:
    """A TensorFlow Lite file with a chain of layers."""

    def __init__(self, shape: tuple[int, ...], *, float_borders: bool = False) -> None:
        self._builder = Builder()
        self._random = np.random.default_rng(4)
        self._float_borders = float_borders
        self._input = self._builder.tensor(
            "x", shape, "float32" if float_borders else "int8", **self._quantisation(0.5, 3)
        )
        self._last, self._shape, self._scale, self._zero = "x", shape, 0.5, 3
        if float_borders:
            self._append("QUANTIZE", shape, 0.5, 3)

    def _quantisation(self, scale: float, zero: int) -> dict[str, Any]:
        return {} if self._float_borders else {"scale": scale, "zero_point": zero}

    def _append(
        self, operator: str, shape: tuple[int, ...], scale: float, zero: int, *more: str, **options: Any
    ) -> None:
        name = self._builder.tensor(f"{operator}_{self._last}", shape, "int8", scale=scale, zero_point=zero)
        self._builder.operator(operator, [self._last, *more], [name], **options)
        self._last, self._shape, self._scale, self._zero = name, shape, scale, zero

    def _constant(self, name: str, array: npt.NDArray[Any], **keywords: Any) -> str:
        return self._builder.tensor(f"{name}_{self._last}", array.shape, str(array.dtype), array, **keywords)

    def convolution(
        self,
        kernel: tuple[int, int],
        shape: tuple[int, ...],
        *,
        depthwise: bool = False,
        stride: int = 1,
        groups: int = 1,
    ) -> None:
        inputs, outputs = self._shape[-1] // groups, shape[-1]
        weights_shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, inputs)
        scales = self._random.uniform(0.5, 2, outputs).astype(np.float32) * np.float32(_WEIGHT_SCALE)
        weights = self._random.integers(-127, 128, weights_shape).astype(np.int8)
        bias = self._random.integers(-900, 900, outputs).astype(np.int32)
        self._append(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            shape,
            self._scale * 0.7,
            -128,
            self._constant("weights", weights, scale=scales, axis=3 if depthwise else 0),
            self._constant("bias", bias, scale=np.float32(self._scale) * scales),
            padding="SAME",
            stride_h=stride,
            stride_w=stride,
            fused_activation_function="RELU",
        )

    def dense(self, outputs: int, *, relu: bool = True) -> None:
        scale = np.float32(_WEIGHT_SCALE)
        weights = self._random.integers(-127, 128, (outputs, self._shape[-1])).astype(np.int8)
        bias = self._random.integers(-900, 900, outputs).astype(np.int32)
        self._append(
            "FULLY_CONNECTED",
            (1, outputs),
            self._scale * 1.1,
            -128 if relu else 5,
            self._constant("weights", weights, scale=scale),
            self._constant("bias", bias, scale=np.float32(self._scale) * scale),
            fused_activation_function="RELU" if relu else "NONE",
        )

    def average(self) -> None:
        _, height, width, channels = self._shape
        sizes = {"filter_height": height, "filter_width": width, "stride_h": height, "stride_w": width}
        shape = (1, 1, 1, channels)
        self._append("AVERAGE_POOL_2D", shape, self._scale, self._zero, padding="VALID", **sizes)
        target = np.array([1, channels], np.int32)
        self._append("RESHAPE", (1, channels), self._scale, self._zero, self._constant("shape", target))

    def softmax(self) -> None:
        self._append("SOFTMAX", self._shape, 1 / 256, -128)

    def finish(self) -> bytes:
        if self._float_borders:
            self._builder.tensor("y", self._shape, "float32")
            self._builder.operator("DEQUANTIZE", [self._last], ["y"])
            self._last = "y"
        return self._builder.finish([self._input], [self._last])


def _keyword_spotting() -> bytes:
    """A network of depthwise separable convolutions on a spectrogram."""
    network = _Network((1, 49, 10, 1))
    network.convolution((10, 4), (1, 25, 5, 16), stride=2)
    for _ in range(2):
        network.convolution((3, 3), (1, 25, 5, 16), depthwise=True)
        network.convolution((1, 1), (1, 25, 5, 16))
    network.average()
    network.dense(12, relu=False)
    network.softmax()
    return network.finish()


def _autoencoder(float_borders: bool) -> bytes:
    network = _Network((1, 640), float_borders=float_borders)
    for outputs in (128, 8, 128):
        network.dense(outputs)
    network.dense(640, relu=False)
    return network.finish()


def _groups() -> bytes:
    """Convolutions in groups, and filters larger than their images."""
    network = _Network((1, 6, 5, 8))
    network.convolution((3, 3), (1, 6, 5, 12), groups=2)
    network.convolution((1, 1), (1, 3, 3, 16), groups=4, stride=2)
    network.convolution((5, 5), (1, 3, 3, 16), depthwise=True)
    network.convolution((3, 3), (1, 2, 2, 16), depthwise=True, stride=2)
    network.convolution((3, 3), (1, 1, 1, 16), depthwise=True, stride=2)
    network.convolution((3, 3), (1, 1, 1, 12))
    return network.finish()


_NETWORKS: dict[str, tuple[Callable[[], bytes], tuple[int, ...], str]] = {
    "keyword spotting": (_keyword_spotting, (1, 49, 10, 1), "int8"),
    "groups": (_groups, (1, 6, 5, 8), "int8"),
    "autoencoder": (lambda: _autoencoder(False), (1, 640), "int8"),
    "autoencoder on floats": (lambda: _autoencoder(True), (1, 640), "float32"),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), Target(extensions=("dsp",))], ids=["plain", "dsp"])
@pytest.mark.parametrize("network", _NETWORKS)
def test_network_equals_the_reference_kernels(network: str, target: Target, tmp_path: Path) -> None:
    build, shape, dtype = _NETWORKS[network]
    content = build()
    library = compile_model(from_tflite(content, "network"), target=target)
    assert not library.leftovers
    compiled_library = HostLibrary(library, tmp_path)
    generator = np.random.default_rng(9)
    images = [np.full(shape, -128), np.full(shape, 127), *generator.integers(-128, 128, (6, *shape))]
    samples = [[image.astype(dtype)] for image in images]
    expected = tflite_micro(content, samples)
    assert len({outputs[0].tobytes() for outputs in expected}) > len(samples) // 2, "the network computes nothing"
    for sample, (output,) in zip(samples, expected, strict=True):
        np.testing.assert_array_equal(compiled_library(*sample)[0], output)
