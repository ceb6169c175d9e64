# SPDX-License-Identifier: Apache-2.0
"""Complete networks of TensorFlow Lite, in 8 and 16 bits, equal the reference kernels in all outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_library import HostLibrary

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.compiler.target import ANY, Target


class _Network:
    """A chain of layers; 16-bit tensors have 256 times finer steps than 8-bit ones."""

    def __init__(self, dtype: str) -> None:
        self.builder = Builder()
        self.random = np.random.default_rng(16)
        self.dtype = dtype
        self.step = 1.0 if dtype == "int8" else 1 / 256
        self.scales: dict[str, float] = {}

    def tensor(self, name: str, shape: tuple[int, ...], scale: float, zero: int = 0) -> str:
        """Add a computed tensor."""
        self.scales[name] = scale * self.step
        zero = zero if self.dtype == "int8" else 0
        return self.builder.tensor(name, shape, self.dtype, scale=self.scales[name], zero_point=zero)

    def layer(self, operator: str, source: str, result: str, shape: tuple[int, ...], axis: int, **options: Any) -> None:
        """Add a layer with weights and a bias; the bias has an invalid quantised dimension."""
        scales = self.random.uniform(0.002, 0.01, shape[axis]).astype(np.float32)
        weights, bias = f"{result}/w", f"{result}/b"
        self.builder.tensor(weights, shape, "int8", self.random.integers(-127, 128, shape), scale=scales, axis=axis)
        numbers = self.random.integers(-3000, 3000, shape[axis])
        wide = "int32" if self.dtype == "int8" else "int64"
        bias_scales = scales * np.float32(self.scales[source])
        self.builder.tensor(bias, (shape[axis],), wide, numbers, scale=bias_scales, axis=3)
        self.builder.operator(operator, [source, weights, bias], [result], **options)


def network(dtype: str) -> bytes:
    """A small network with a residual connection and two heads."""
    net = _Network(dtype)
    net.tensor("x", (1, 8, 8, 3), 0.05, 3)
    net.tensor("c", (1, 8, 8, 8), 0.08, -5)
    net.layer("CONV_2D", "x", "c", (8, 3, 3, 3), 0, padding="SAME", fused_activation_function="RELU")
    net.tensor("d", (1, 8, 8, 8), 0.09)
    net.layer("DEPTHWISE_CONV_2D", "c", "d", (1, 3, 3, 8), 3, padding="SAME", fused_activation_function="RELU6")
    net.tensor("a", (1, 8, 8, 8), 0.1, 1)
    net.builder.operator("ADD", ["c", "d"], ["a"])
    net.tensor("p", (1, 4, 4, 8), 0.1, 1)
    window = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2}
    net.builder.operator("AVERAGE_POOL_2D", ["a"], ["p"], padding="VALID", **window)
    net.builder.tensor("axes", (2,), "int32", [1, 2])
    net.tensor("m", (1, 8), 0.06, 2)
    net.builder.operator("MEAN", ["p", "axes"], ["m"], keep_dims=False)
    net.tensor("f", (1, 5), 0.05)
    net.layer("FULLY_CONNECTED", "m", "f", (5, 8), 0)
    head = {"scale": 1 / 256, "zero_point": -128} if dtype == "int8" else {"scale": 1 / 32768}
    for name, operator in (("s", "SOFTMAX"), ("l", "LOGISTIC")):
        net.builder.tensor(name, (1, 5), dtype, **head)
        net.builder.operator(operator, ["f"], [name])
    return net.builder.finish(["x"], ["s", "l", "a"])


@pytest.mark.slow
@pytest.mark.parametrize("target", [ANY, Target(extensions=("dsp",))], ids=["plain", "dsp"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_integer_network_equals_the_kernels(dtype: str, target: Target, tmp_path: Path) -> None:
    content = network(dtype)
    limits = np.iinfo(dtype)
    image = np.random.default_rng(7).integers(limits.min, limits.max + 1, (1, 8, 8, 3)).astype(dtype)
    library = compile_model(from_tflite(content, "m"), target=target)
    (expected,) = tflite_micro(content, [[image]], 3)
    assert not library.leftovers
    assert [output.tolist() for output in HostLibrary(library, tmp_path)(image)] == [
        expected_output.tolist() for expected_output in expected
    ]
