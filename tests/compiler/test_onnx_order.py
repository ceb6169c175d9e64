# SPDX-License-Identifier: Apache-2.0
"""ONNX models as exporters write them: functions, node order, open sizes, narrow constants; against ONNX's own."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from utvm.compiler import reference
from utvm.compiler.read.onnx_file import from_onnx
from utvm.errors import CompileError, ConfigError

FLOAT, HALF, INT64, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BFLOAT16
RANDOM = np.random.default_rng(3)
node = helper.make_node


def value(name: str, shape: Sequence[int | str], kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, content: npt.ArrayLike) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(content), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    stored: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 21,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, functions=functions, opset_imports=domains, ir_version=10)


def outputs_of(
    proto: onnx.ModelProto, inputs: Mapping[str, npt.NDArray[Any]], **options: Any
) -> list[npt.NDArray[Any]]:
    return reference(from_onnx(proto.SerializeToString(), "m", **options))(list(inputs.values()))


def check(proto: onnx.ModelProto, inputs: Mapping[str, npt.NDArray[Any]], rtol: float = 1e-6, **options: Any) -> None:
    golden_outputs = ReferenceEvaluator(proto).run(None, dict(inputs))
    for result, golden in zip(outputs_of(proto, inputs, **options), golden_outputs, strict=True):
        np.testing.assert_allclose(result, np.asarray(golden, result.dtype), rtol=rtol, atol=1e-6)


X = {"x": RANDOM.standard_normal((2, 8)).astype(np.float32)}
IDS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]


def test_functions_of_the_file_are_inlined() -> None:
    square = helper.make_function("mine", "Square", ["a"], ["b"], [node("Mul", ["a", "a"], ["b"])], IDS)
    body = [node("Square", ["a"], ["t"], domain="mine"), node("LeakyRelu", ["t"], ["u"]), node("Neg", ["u"], ["b"])]
    body[1].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    outer = helper.make_function("mine", "Outer", ["a"], ["b"], body, IDS, ["slope"])
    nodes = [
        node("Outer", ["x"], ["h"], domain="mine", slope=0.5),
        node("Outer", ["h"], ["y"], domain="mine", slope=0.25),
    ]
    proto = model(nodes, [value("x", [2, 8])], [value("y", [2, 8])], functions=[square, outer])
    np.testing.assert_allclose(outputs_of(proto, X)[0], -(X["x"] ** 4), rtol=1e-6)  # No sum is negative.


def test_recursive_function_is_refused() -> None:
    endless = helper.make_function("mine", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="mine")], IDS)
    proto = model([node("F", ["x"], ["y"], domain="mine")], [value("x", [2])], [value("y", [2])], functions=[endless])
    with pytest.raises(CompileError, match="a function that the file defines cannot be inlined: F"):
        from_onnx(proto.SerializeToString(), "m")


def test_nodes_may_have_any_order() -> None:
    branch = helper.make_graph([node("Add", ["b", "x"], ["z"])], "branch", [], [value("z", [2, 8])])
    chain = [
        node("Relu", ["x"], ["a"]),
        node("Mul", ["a", "x"], ["b"]),
        node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch),
        node("Add", ["a", "c"], ["y"]),
    ]
    expected = np.maximum(X["x"], 0) * X["x"] + X["x"] + np.maximum(X["x"], 0)
    for order in itertools.islice(itertools.permutations(chain), 0, 24, 5):
        proto = model(order, [value("x", [2, 8])], [value("y", [2, 8])], [constant("yes", True)])
        np.testing.assert_allclose(outputs_of(proto, X)[0], expected, rtol=1e-6)


def test_size_of_minus_one_is_dynamic() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["m"]),
        node("Concat", ["m", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    stored = [constant("first", np.int64(0)), constant("axis", [0]), constant("rest", [-1])]
    proto = model(nodes, [value("x", [-1, 2, 4])], [value("y", [-1, 8])], stored)
    with pytest.raises(CompileError, match=r"input 'x': dimension 0 has no fixed size\n  hint: .*--set shape"):
        from_onnx(proto.SerializeToString(), "m")
    x = X["x"].reshape(2, 2, 4)
    assert (outputs_of(proto, {"x": x}, shapes={"x": (2, 2, 4)})[0] == X["x"]).all()


@pytest.mark.parametrize("opset", [13, 21])
def test_nonzero_of_a_constant_is_folded(opset: int) -> None:
    """Exporters write NonZero of a constant for known masks."""
    nodes = [
        node("ConstantOfShape", ["size"], ["ones"], value=helper.make_tensor("v", INT64, [1], [1])),
        node("NonZero", ["ones"], ["places"]),
        node("Squeeze", ["places", "axis"], ["row"]),
        node("Gather", ["x", "row"], ["y"], axis=1),
    ]
    stored = [constant("size", [5]), constant("axis", [0])]
    check(model(nodes, [value("x", [2, 8])], [value("y", [2, "n"])], stored, opset=opset), X)


def test_stale_sizes_of_results_are_ignored() -> None:
    proto = model([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])], [value("x", [2, 8])], [value("y", [1, 8])])
    proto.graph.value_info.append(value("h", [1, 8]))
    assert (outputs_of(proto, X)[0] == -np.maximum(X["x"], 0)).all()


def test_input_becomes_a_constant() -> None:
    branches = {
        f"{name}_branch": helper.make_graph([node(operator, ["x"], [name])], name, [], [value(name, [2, 8])])
        for name, operator in (("then", "Neg"), ("else", "Abs"))
    }
    nodes = [
        node("Equal", ["sr", "k"], ["wide"]),
        node("If", ["wide"], ["h"], **branches),
        node("Mul", ["h", "g"], ["y"]),
    ]
    inputs = [value("x", [2, 8]), value("sr", [], INT64), value("g", ["n"])]
    proto = model(nodes, inputs, [value("y", [2, 8])], [constant("k", np.int64(16000))])
    gains = tuple(range(8))
    (result,) = outputs_of(proto, X, values={"sr": (16000,), "g": gains})
    assert (result == -X["x"] * np.array(gains, np.float32)).all()
    for values, message in (
        ({"rate": (1,)}, r"has no input 'rate'\n  hint: inputs: x, sr, g"),
        ({"sr": (1.5,)}, r"input sr is int64, which cannot be 1\.5"),
        ({"x": (1, 2)}, r"input x is \[2, 8\], which 2 numbers do not fill"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_onnx(proto.SerializeToString(), "m", values=values)


@pytest.mark.parametrize(("kind", "dtype"), [(HALF, np.float16), (BRAIN, ml_dtypes.bfloat16)])
def test_16_bit_floats_become_float32(kind: int, dtype: Any) -> None:
    weights = RANDOM.standard_normal((8, 3)).astype(dtype)
    nodes = [
        node("Cast", ["x"], ["h"], to=kind),
        node("MatMul", ["h", "w"], ["m"]),
        node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(0.5, dtype))),
        node("Add", ["m", "c"], ["y"]),
    ]
    inputs, outputs = [value("x", [2, 8], kind)], [value("y", [2, 3], kind)]
    (result,) = outputs_of(model(nodes, inputs, outputs, [numpy_helper.from_array(weights, "w")]), X)
    np.testing.assert_allclose(result, X["x"] @ weights.astype(np.float32) + np.float32(0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_constants_are_dequantised(dtype: str) -> None:
    real = RANDOM.integers(0 if dtype == "uint4" else -7, 8, (8, 6))
    weights = numpy_helper.from_array(real.astype(getattr(ml_dtypes, dtype)), "w")
    scales = constant("s", RANDOM.uniform(0.01, 0.1, 6).astype(np.float32))
    nodes = [node("DequantizeLinear", ["w", "s"], ["r"], axis=1), node("MatMul", ["x", "r"], ["y"])]
    check(model(nodes, [value("x", [2, 8])], [value("y", [2, 6])], [weights, scales]), X, 1e-5)


@pytest.mark.parametrize(("axis", "block", "shape"), [(0, 4, (2, 6)), (0, 3, (3, 6)), (1, 2, (8, 3)), (-1, 6, (8, 1))])
@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4])
def test_blocked_constants_are_dequantised(axis: int, block: int, shape: tuple[int, int], dtype: Any) -> None:
    stored = [
        numpy_helper.from_array(RANDOM.integers(-8, 8, (8, 6)).astype(dtype), "w"),
        constant("s", RANDOM.uniform(0.01, 0.1, shape).astype(np.float32)),
        numpy_helper.from_array(RANDOM.integers(-8, 8, shape).astype(dtype), "z"),
    ]
    dequantise = node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=axis, block_size=block)
    proto = model([dequantise, node("MatMul", ["x", "r"], ["y"])], [value("x", [2, 8])], [value("y", [2, 6])], stored)
    scale, zero = (
        np.repeat(numpy_helper.to_array(tensor).astype(np.float32), block, axis).take(range((8, 6)[axis]), axis)
        for tensor in stored[1:]
    )
    expected = X["x"] @ ((numpy_helper.to_array(stored[0]).astype(np.float32) - zero) * scale)
    np.testing.assert_allclose(outputs_of(proto, X)[0], expected, rtol=1e-5, atol=1e-6)


def test_computed_int4_is_refused() -> None:
    stored = [constant("s", np.float32(0.1)), numpy_helper.from_array(np.array(0, ml_dtypes.int4), "z")]
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    proto = model(nodes, [value("x", [2, 8])], [value("y", [2, 8])], stored)
    with pytest.raises(CompileError, match="constant 'z': has elements of type int4"):
        from_onnx(proto.SerializeToString(), "m")


@pytest.mark.slow
def test_lstm_clip_limits_sums_only() -> None:
    """Like onnxruntime; ONNX's definition is ambiguous, and its evaluator ignores the attribute."""
    w, r = (RANDOM.uniform(-0.1, 1, (1, 8, width)).astype(np.float32) for width in (8, 2))
    lstm = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2, clip=0.5)
    proto = model([lstm], [value("x", [4, 2, 8])], [value("y", [4, 1, 2, 2])], [constant("w", w), constant("r", r)])
    x = RANDOM.uniform(0, 1, (4, 2, 8)).astype(np.float32)
    hidden = cell = np.zeros((2, 2))
    expected = []
    for row in x.astype(np.float64):
        into, out, forget, new = np.split(np.clip(row @ w[0].T + hidden @ r[0].T, -0.5, 0.5), 4, axis=1)
        into, out, forget = (1 / (1 + np.exp(-gate)) for gate in (into, out, forget))
        cell = forget * cell + into * np.tanh(new)
        hidden = out * np.tanh(cell)
        expected.append(hidden)
    assert abs(cell).max() > 0.5
    np.testing.assert_allclose(outputs_of(proto, {"x": x})[0][:, 0], expected, rtol=1e-4, atol=1e-5)


def test_missing_output_shape_is_inferred() -> None:
    """An exporter omitted it, and ONNX's own inference does not infer it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["u"]),
        node("Concat", ["u", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    stored = [constant("first", 0), constant("axes", [0]), constant("rest", [-1, 2])]
    bare = helper.make_tensor_value_info("y", FLOAT, None)
    check(model(nodes, [value("x", (2, 8))], [bare], stored, opset=13), X)


def test_constants_of_old_files_need_no_inputs() -> None:
    proto = model([node("Add", ["x", "c"], ["y"])], [value("x", (2, 8))], [value("y", (2, 8))], [constant("c", X["x"])])
    proto.ir_version = 3
    check(proto, X)
