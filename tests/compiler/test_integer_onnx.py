# SPDX-License-Identifier: Apache-2.0
"""A quantised ONNX network in integers, against an exact numpy model of its arithmetic and the float result."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from host_library import HostLibrary
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from utvm.compiler import Target, compile_model, from_onnx
from utvm.errors import CompileError

Array = npt.NDArray[Any]

_IMAGE, _CHANNELS, _CLASSES = (1, 3, 8, 8), 8, 5
# Scale and zero point of every activation, all uint8.
_ACTIVATIONS = {
    "x": (0.02, 120),
    "first": (0.015, 0),
    "pooled": (0.015, 0),
    "left": (0.03, 131),
    "right": (0.02, 117),
    "sum": (0.025, 0),
    "mean": (0.01, 4),
    "y": (0.01, 125),
}


class _Network:
    """Convolution, Relu, MaxPool, two branches, Add, Relu, GlobalAveragePool, Flatten, and a dense layer."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, Array] = {}
        self._random = np.random.default_rng(11)
        for name, (scale, zero) in _ACTIVATIONS.items():
            self.stored |= {f"{name}_scale": np.array(scale, np.float32), f"{name}_zero": np.array(zero, np.uint8)}

    def build(self, opset: int, dense: str, channels: int = 3, *, channels_last: bool = False) -> onnx.ModelProto:
        name, shape = "x", (1, channels, *_IMAGE[2:])
        if channels_last:
            name, shape = "image", (1, *_IMAGE[2:], channels)
            self.nodes.append(helper.make_node("Transpose", [name], ["x"], perm=[0, 3, 1, 2]))
        self.nodes.append(helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["x_q"]))
        self.nodes.append(helper.make_node("DequantizeLinear", ["x_q", "x_scale", "x_zero"], ["x_real"]))
        self._convolution("first", "x", (_CHANNELS, channels, 3, 3), relu=True)
        self._unary("MaxPool", "first", "pooled", kernel_shape=[2, 2], strides=[2, 2])
        self._convolution("left", "pooled", (_CHANNELS, _CHANNELS, 3, 3))
        self._convolution("right", "pooled", (_CHANNELS, _CHANNELS, 1, 1))
        self.nodes.append(helper.make_node("Add", ["left_real", "right_real"], ["added"]))
        self.nodes.append(helper.make_node("Relu", ["added"], ["sum_float"]))
        self._quantise("sum")
        self._unary("GlobalAveragePool", "sum", "mean")
        self.nodes.append(helper.make_node("Flatten", ["mean_real"], ["flat"]))
        self._dense(dense)
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y_real", TensorProto.FLOAT, (1, _CLASSES))],
            [numpy_helper.from_array(value, name) for name, value in self.stored.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    def _quantise(self, name: str) -> None:
        scale, zero = f"{name}_scale", f"{name}_zero"
        self.nodes.append(helper.make_node("QuantizeLinear", [f"{name}_float", scale, zero], [f"{name}_q"]))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", scale, zero], [f"{name}_real"]))

    def _unary(self, operator: str, source: str, name: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(operator, [f"{source}_real"], [f"{name}_float"], **attributes))
        self._quantise(name)

    def _weights(self, name: str, source: str, shape: tuple[int, ...], axis: int) -> None:
        outputs = shape[axis]
        scales = self._random.uniform(0.002, 0.01, outputs).astype(np.float32)
        source_scale = np.float32(_ACTIVATIONS[source][0])
        self.stored |= {
            f"{name}_w": self._random.integers(-127, 128, shape).astype(np.int8),
            f"{name}_ws": scales,
            f"{name}_wz": np.zeros(outputs, np.int8),
            f"{name}_b": self._random.integers(-3000, 3000, outputs).astype(np.int32),
            f"{name}_bs": source_scale * scales,
            f"{name}_bz": np.zeros(outputs, np.int32),
        }
        inputs = [f"{name}_{part}" for part in ("w", "ws", "wz")]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_weights"], axis=axis))
        inputs = [f"{name}_{part}" for part in ("b", "bs", "bz")]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_bias"], axis=0))

    def _convolution(self, name: str, source: str, shape: tuple[int, ...], *, relu: bool = False) -> None:
        self._weights(name, source, shape, 0)
        inputs = [f"{source}_real", f"{name}_weights", f"{name}_bias"]
        result = f"{name}_sums" if relu else f"{name}_float"
        self.nodes.append(helper.make_node("Conv", inputs, [result], pads=[shape[-1] // 2] * 4))
        if relu:
            self.nodes.append(helper.make_node("Relu", [result], [f"{name}_float"]))
        self._quantise(name)

    def _dense(self, kind: str) -> None:
        if kind == "Gemm":
            self._weights("y", "mean", (_CLASSES, _CHANNELS), 0)
            inputs = ["flat", "y_weights", "y_bias"]
            self.nodes.append(helper.make_node("Gemm", inputs, ["y_float"], transB=1))
        else:
            self._weights("y", "mean", (_CHANNELS, _CLASSES), 1)
            self.nodes.append(helper.make_node("MatMul", ["flat", "y_weights"], ["product"]))
            self.nodes.append(helper.make_node("Add", ["product", "y_bias"], ["y_float"]))
        self._quantise("y")


class _Exact:
    """The network in fixed point: sums in int64; each product with a factor is rounded twice."""

    def __init__(self, stored: dict[str, Array]) -> None:
        self._stored = stored

    def __call__(self, x: Array) -> Array:
        scale, zero = self._stored["x_scale"], int(self._stored["x_zero"])
        image = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64)
        first = self._convolution(image, "x", "first", lowest=0)
        pooled = first.reshape(1, _CHANNELS, 4, 2, 4, 2).max(axis=(3, 5))
        left, right = (self._convolution(pooled, "pooled", name) for name in ("left", "right"))
        mean = self._mean(self._sum(left, right))
        weights = self._stored["y_w"].astype(np.int64)
        weights = weights if weights.shape == (_CLASSES, _CHANNELS) else weights.T
        sums = (mean - self._zero("mean")) @ weights.T + self._stored["y_b"]
        result = self._rescale(sums, self._factors("mean", "y"), "y", 0)
        return (result - self._zero("y")).astype(np.float32) * self._stored["y_scale"]

    def _zero(self, name: str) -> int:
        return int(self._stored[f"{name}_zero"])

    def _scale(self, name: str) -> float:
        return float(self._stored[f"{name}_scale"])

    def _factors(self, source: str, name: str) -> Array:
        return self._scale(source) * self._stored[f"{name}_ws"].astype(np.float64) / self._scale(name)

    def _rescale(self, sums: Array, factors: Array, name: str, lowest: int) -> Array:
        rescaled = multiply(sums, np.broadcast_to(factors, sums.shape)) + self._zero(name)
        return np.clip(rescaled, lowest, 255)

    def _convolution(self, image: Array, source: str, name: str, lowest: int = 0) -> Array:
        weights = self._stored[f"{name}_w"].astype(np.int64)
        outputs, _, size, _ = weights.shape
        margin = size // 2
        padded = np.pad(image - self._zero(source), [(0, 0), (0, 0), (margin, margin), (margin, margin)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
        sums = np.einsum("nchwij,ocij->nohw", windows, weights)
        sums = sums + self._stored[f"{name}_b"].reshape(1, outputs, 1, 1)
        return self._rescale(sums, self._factors(source, name).reshape(1, outputs, 1, 1), name, lowest)

    def _sum(self, left: Array, right: Array) -> Array:
        common = 2 * max(self._scale("left"), self._scale("right"))
        rescaled = [
            multiply((value - self._zero(name)) << 20, np.full(value.shape, self._scale(name) / common))
            for name, value in (("left", left), ("right", right))
        ]
        factor = np.array(common / (2**20 * self._scale("sum")))
        return self._rescale(rescaled[0] + rescaled[1], factor, "sum", 0)

    def _mean(self, image: Array) -> Array:
        count = image.shape[2] * image.shape[3]
        sums = (image - self._zero("sum")).sum(axis=(2, 3))
        # Dividing by a power of two changes only the factor's exponent.
        assert count & (count - 1) == 0
        return self._rescale(sums, np.array(self._scale("sum") / self._scale("mean") / count), "mean", 0)


def multiply(values: Array, factors: Array) -> Array:
    """Products with 31-bit fractions and powers of two, rounded after each step."""
    fractions, exponents = np.frexp(factors)
    multipliers = np.floor(fractions * 2**31 + 0.5).astype(np.int64)
    left, right = np.maximum(exponents, 0).astype(np.int64), np.maximum(-exponents, 0).astype(np.int64)
    high = ((values << left) * multipliers + 2**30) >> 31
    magnitude = (np.abs(high) + ((1 << right) >> 1)) >> right
    return np.where(high < 0, -magnitude, magnitude)


@pytest.mark.slow
@pytest.mark.parametrize(("opset", "dense"), [(13, "Gemm"), (19, "MatMul")])
@pytest.mark.parametrize("target", [Target(), Target(extensions=("dsp",))], ids=["plain", "dsp"])
def test_quantised_network_runs_in_integers(opset: int, dense: str, target: Target, tmp_path: Path) -> None:
    network = _Network()
    content = network.build(opset, dense).SerializeToString()
    library = compile_model(from_onnx(content, "network"), target=target)
    assert not library.leftovers
    compiled_library, exact = HostLibrary(library, tmp_path), _Exact(network.stored)
    # The reference evaluator has these operators since operator set 19; earlier definitions are equal.
    floats = ReferenceEvaluator(_Network().build(19, dense))
    generator = np.random.default_rng(3)
    for image in [np.full(_IMAGE, -9), np.full(_IMAGE, 9), *generator.uniform(-2.5, 2.6, (6, *_IMAGE))]:
        (result,) = compiled_library(image.astype(np.float32))
        np.testing.assert_array_equal(result, exact(image.astype(np.float32)))
        (expected,) = floats.run(None, {"x": image.astype(np.float32)})
        assert np.abs(result - expected).max() <= 1.001 * network.stored["y_scale"]


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "channels_last"), [(1, False), (3, True)])
def test_a_float_image_is_quantised_by_rows(channels: int, channels_last: bool, tmp_path: Path) -> None:
    network = _Network()
    content = network.build(13, "Gemm", channels, channels_last=channels_last).SerializeToString()
    library = compile_model(from_onnx(content, "network"), target=Target(goal="ram", input_rows=True))
    assert library.takes_rows
    image = np.random.default_rng(3).uniform(-2.5, 2.6, (1, channels, *_IMAGE[2:])).astype(np.float32)
    (result,) = HostLibrary(library, tmp_path)(image.transpose(0, 2, 3, 1) if channels_last else image)
    np.testing.assert_array_equal(result, _Exact(network.stored)(image))


def test_planes_of_an_image_are_not_handed_over_by_rows() -> None:
    content = _Network().build(13, "Gemm").SerializeToString()
    with pytest.raises(CompileError, match="transpose_reshape reads the whole image"):
        compile_model(from_onnx(content, "network"), target=Target(input_rows=True))
