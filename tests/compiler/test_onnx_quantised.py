# SPDX-License-Identifier: Apache-2.0
"""ONNX's quantised operators, against the reference evaluator of the package ``onnx`` and exact numpy sums."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from utvm.compiler import from_onnx, reference
from utvm.errors import CompileError

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(5)
Array = np.ndarray[Any, np.dtype[Any]]
KINDS = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int32": TensorProto.INT32}


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
    stored: Mapping[str, Array],
    opset: int = 13,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, KINDS[str(value.dtype)], value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def integers(shape: Sequence[int], dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def run_model(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> Array:
    return reference(from_onnx(proto.SerializeToString(), "m"))(list(inputs.values()))[0]


@pytest.mark.parametrize("opset", [13, 19, 21])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_convolution_equals_the_evaluator(opset: int, dtype: str) -> None:
    inputs = {"x": RANDOM.normal(0, 1, (1, 3, 6, 5)).astype(np.float32)}
    stored = {
        "xs": scalar(0.02), "xz": scalar(3, dtype), "w": integers((4, 3, 3, 3), "int8"),
        "ws": np.array([0.01, 0.02, 0.03, 0.04], np.float32), "wz": np.zeros(4, np.int8),
        "b": RANDOM.integers(-900, 900, 4).astype(np.int32),
        "bs": np.array([0.01, 0.02, 0.03, 0.04], np.float32) * np.float32(0.02),
        "ys": scalar(0.1), "yz": scalar(7, dtype),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["a", "ys", "yz"], ["aq"]),
        helper.make_node("DequantizeLinear", ["aq", "ys", "yz"], ["y"]),
    ]
    outputs: dict[str, Any] = {"y": ("float32", (1, 4, 6, 5))}
    result = run_model(model(nodes, inputs, outputs, stored, opset), inputs)
    # The reference evaluator has these operators since operator set 19; earlier definitions are equal.
    newer = model(nodes, inputs, outputs, stored, max(opset, 19))
    expected = ReferenceEvaluator(newer).run(None, dict(inputs))[0]
    # A float sum in another order may round to the other side of a half.
    assert np.abs(result - expected).max() < 0.1001 and (np.abs(result - expected) > 1e-5).mean() < 0.02


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_qlinear_conv_equals_numpy(dtype: str) -> None:
    inputs = {"x": integers((1, 3, 6, 5), dtype)}
    stored = {
        "xs": scalar(0.02), "xz": scalar(3, dtype), "w": integers((4, 3, 3, 3), "int8"),
        "ws": np.array([0.01, 0.02, 0.03, 0.04], np.float32), "wz": np.zeros(4, np.int8),
        "ys": scalar(0.1), "yz": scalar(7, dtype), "b": RANDOM.integers(-900, 900, 4).astype(np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"],
                            strides=[2, 1], pads=[1, 0, 1, 0])  # fmt: skip
    proto = model([node], inputs, {"y": (dtype, (1, 4, 3, 3))}, stored)
    result = run_model(proto, inputs)
    # The reference evaluator lacks scales per channel here: exact sums, then one rounding.
    sums = convolution(inputs["x"].astype(np.int64) - 3, stored["w"].astype(np.int64), (2, 1), (1, 0))
    scale = stored["xs"].astype(np.float64) * stored["ws"] / 0.1
    real = (sums + stored["b"].reshape(1, 4, 1, 1)) * scale.reshape(1, 4, 1, 1)
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(real) + 7, limits.min, limits.max)
    assert result.dtype == dtype and np.abs(result - expected).max() <= 1 and (result != expected).mean() < 0.02


@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul_equals_numpy(columns: bool) -> None:
    inputs = {"a": integers((3, 8), "uint8")}
    scales = np.array([0.01, 0.02, 0.03, 0.04, 0.05], np.float32) if columns else scalar(0.02)
    zeros = np.zeros(5, np.int8) if columns else scalar(4, "int8")
    stored = {
        "as": scalar(0.03), "az": scalar(100, "uint8"), "b": integers((8, 5), "int8"), "bs": scales, "bz": zeros,
        "ys": scalar(0.2), "yz": scalar(120, "uint8"),
    }  # fmt: skip
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    proto = model([node], inputs, {"y": ("uint8", (3, 5))}, stored)
    result = run_model(proto, inputs)
    sums = (inputs["a"].astype(np.int64) - 100) @ (stored["b"].astype(np.int64) - zeros)
    expected = np.clip(np.rint(sums * (0.03 * scales.astype(np.float64) / 0.2)) + 120, 0, 255)
    assert result.dtype == np.uint8 and np.abs(result - expected).max() <= 1


def test_conv_integer_is_exact() -> None:
    inputs = {"x": integers((1, 3, 6, 5), "uint8")}
    stored = {"w": integers((4, 3, 3, 2), "int8"), "xz": scalar(9, "uint8"), "wz": np.array([0, 1, -2, 3], np.int8)}
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1, 0, 1, 0], strides=[2, 1])
    proto = model([node], inputs, {"y": ("int32", (1, 4, 3, 4))}, stored)
    result = run_model(proto, inputs)
    weights = stored["w"].astype(np.int64) - stored["wz"].reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(result, convolution(inputs["x"].astype(np.int64) - 9, weights, (2, 1), (1, 0)))
    assert result.dtype == np.int32


@pytest.mark.parametrize("zeros", [(12, 0), ([1, 2, 3], [4, 5, 6, 7])])
def test_matmul_integer_is_exact(zeros: tuple[Any, Any]) -> None:
    inputs = {"a": integers((3, 700), "uint8")}
    left, right = np.array(zeros[0], np.uint8), np.array(zeros[1], np.int8)
    stored = {"b": integers((700, 4), "int8"), "az": left, "bz": right}
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    proto = model([node], inputs, {"y": ("int32", (3, 4))}, stored)
    result = run_model(proto, inputs)
    centred = inputs["a"].astype(np.int64) - (left.reshape(-1, 1) if left.size > 1 else left)
    np.testing.assert_array_equal(result, centred @ (stored["b"].astype(np.int64) - right))


# ONNX's evaluator lacks ONNX Runtime's operators; by their documentation each is the float operator between a
# dequantisation and a quantisation.
_MICROSOFT = {
    "QLinearAdd": (2, lambda a, b: a + b, {}),
    "QLinearMul": (2, lambda a, b: a * b, {}),
    "QLinearSigmoid": (1, lambda a: 1 / (1 + np.exp(-a)), {}),
    "QLinearLeakyRelu": (1, lambda a: np.where(a < 0, a * np.float32(0.1), a), {"alpha": 0.1}),
    "QLinearSoftmax": (1, lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True), {"axis": -1}),
    "QLinearGlobalAveragePool": (1, lambda a: a.mean((2, 3), keepdims=True), {}),
    "QLinearAveragePool": (
        1,
        lambda a: a.reshape(1, 2, 2, 2, 2, 2).mean((3, 5)),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "QLinearConcat": (2, lambda a, b: np.concatenate([a, b], 1), {"axis": 1}),
}


@pytest.mark.parametrize("operator", _MICROSOFT)
def test_onnx_runtime_operators_equal_numpy(operator: str) -> None:
    count, compute, attributes = _MICROSOFT[operator]
    arrays = [integers((1, 2, 4, 4), "uint8") for _ in range(count)]
    stored = {"s0": scalar(0.02), "z0": scalar(120, "uint8"), "s1": scalar(0.03), "z1": scalar(99, "uint8")}
    reals = [
        (array.astype(np.float32) - stored[f"z{number}"].astype(np.float32)) * stored[f"s{number}"]
        for number, array in enumerate(arrays)
    ]
    expected = np.clip(np.rint(compute(*reals) / np.float32(0.05)) + 100, 0, 255).astype(np.uint8)
    operands = [name for number in range(count) for name in (f"x{number}", f"s{number}", f"z{number}")]
    scaling = ["s", "z"]
    node = helper.make_node(
        operator, [*scaling, *operands] if operator == "QLinearConcat" else [*operands, *scaling], ["y"],
        domain="com.microsoft", **attributes,
    )  # fmt: skip
    inputs = {f"x{number}": array for number, array in enumerate(arrays)}
    stored |= {"s": scalar(0.05), "z": scalar(100, "uint8")}
    proto = model([node], inputs, {"y": ("uint8", expected.shape)}, stored)
    # A sum exactly between two integers may be rounded either way.
    assert np.abs(run_model(proto, inputs).astype(int) - expected).max() <= 1


@pytest.mark.parametrize(("axis", "opset"), [(1, 12), (1, 13), (-1, 12)])
def test_softmax_follows_its_operator_set(axis: int, opset: int) -> None:
    scale, inputs = np.float32(0.02), {"a": integers((2, 3, 4), "uint8")}
    stored = {"s": scalar(0.02), "z": scalar(120, "uint8"), "t": scalar(1 / 256), "n": scalar(0, "uint8")}
    node = helper.make_node(
        "QLinearSoftmax", ["a", "s", "z", "t", "n"], ["y"], domain="com.microsoft", axis=axis, opset=opset
    )
    real = np.exp((inputs["a"].astype(np.float32) - 120) * scale)
    axes = (1, 2) if (axis, opset) == (1, 12) else axis  # Before 13, all axes from this one on.
    expected = np.clip(np.rint(real / real.sum(axes, keepdims=True) * 256), 0, 255)
    result = run_model(model([node], inputs, {"y": ("uint8", (2, 3, 4))}, stored), inputs)
    assert np.abs(result - expected).max() <= 1


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("quantised", [False, True])
def test_qgemm_equals_numpy(quantised: bool, transposed: int) -> None:
    inputs, weights = {"a": integers((3, 8), "uint8")}, integers((8, 5), "int8")
    scales = np.array([0.01, 0.02, 0.03, 0.04, 0.05], np.float32)
    bias = RANDOM.integers(-900, 900, 5).astype(np.int32)
    stored = {
        "as": scalar(0.03), "az": scalar(100, "uint8"), "bs": scales,
        "b": np.ascontiguousarray(weights.T) if transposed else weights,
        "bz": np.zeros(5, np.int8), "c": bias, "ys": scalar(0.2), "yz": scalar(120, "uint8"),
    }  # fmt: skip
    names = ["a", "as", "az", "b", "bs", "bz", "c", *(["ys", "yz"] if quantised else [])]
    node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", transB=transposed)
    result = run_model(model([node], inputs, {"y": ("uint8" if quantised else "float32", (3, 5))}, stored), inputs)
    real = ((inputs["a"].astype(np.int64) - 100) @ weights.astype(np.int64) + bias) * (scales * np.float64(0.03))
    if quantised:
        assert np.abs(result - np.clip(np.rint(real / 0.2) + 120, 0, 255)).max() <= 1
    else:
        np.testing.assert_allclose(result, real, 1e-5, 1e-5)


def test_dynamic_quantisation_scales_equal_the_reference() -> None:
    inputs = {"x": RANDOM.normal(0, 2, (3, 8)).astype(np.float32)}
    stored = {"w": integers((8, 4), "int8"), "wz": scalar(3, "int8"), "ws": scalar(0.01)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node("MatMulInteger", ["xq", "w", "xz", "wz"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["xs", "ws"], ["scale"]),
        helper.make_node("Mul", ["real", "scale"], ["product"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["again"]),
    ]
    outputs: dict[str, Any] = {"product": ("float32", (3, 4)), "again": ("float32", (3, 8))}
    proto = model(nodes, inputs, outputs, stored, 19)
    results = reference(from_onnx(proto.SerializeToString(), "m"))(list(inputs.values()))
    for result, expected in zip(results, ReferenceEvaluator(proto).run(None, dict(inputs)), strict=True):
        np.testing.assert_allclose(result, expected, 1e-5, 1e-5)


def test_missing_zero_point_is_zero() -> None:
    inputs = {"a": integers((3, 8), "int8")}
    stored = {"s": scalar(0.05), "z": scalar(7, "int8"), "t": scalar(0.02)}
    node = helper.make_node("QLinearSigmoid", ["a", "s", "z", "t"], ["y"], domain="com.microsoft")
    result = run_model(model([node], inputs, {"y": ("int8", (3, 8))}, stored), inputs)
    expected = np.rint(1 / (1 + np.exp(-0.05 * (inputs["a"].astype(float) - 7))) / 0.02)
    assert np.abs(result - expected).max() <= 1


def test_unsupported_quantised_operator_is_named() -> None:
    inputs = {"a": integers((3, 8), "uint8")}
    node = helper.make_node(
        "QLinearReduceMean", ["a", "s", "z", "s", "z"], ["y"], name="mean", domain="com.microsoft", axes=[1]
    )
    stored = {"s": scalar(0.1), "z": scalar(3, "uint8")}
    proto = model([node], inputs, {"y": ("uint8", (3, 1))}, stored)
    with pytest.raises(CompileError, match=r"not supported: QLinearReduceMean \(at mean\)"):
        reference(from_onnx(proto.SerializeToString(), "m"))


def convolution(data: Array, weights: Array, strides: tuple[int, int], padding: tuple[int, int]) -> Array:
    """Exact integer convolution: NCHW, OIHW."""
    (row_stride, column_stride), (top, left) = strides, padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, top), (left, left)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], (2, 3))[
        :, :, ::row_stride, ::column_stride
    ]
    result: Array = np.einsum("nchwij,ocij->nohw", windows, weights)
    return result
