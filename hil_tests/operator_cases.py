# SPDX-License-Identifier: Apache-2.0
"""Operators with inputs and expected outputs, for the tests on the host and the suite on a board.

A case is a small model with one or two operators and fixed inputs. The expected outputs come from numpy, or from
plain Python loops over the operator's definition, never from TVM.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from utvm.compiler import Model, from_onnx, from_relax

Array = npt.NDArray[Any]

_OPSET = 18
_IR_VERSION = 8


@dataclass(frozen=True)
class OperatorCase:
    """One operator, one set of inputs, the expected outputs.

    Attributes:
        name: name of the case.
        model: builds the model.
        inputs: inputs of the model.
        golden: computes the expected outputs from the inputs.
        rtol: maximum relative difference of an element; 0 means bit for bit.
        atol: additional absolute tolerance, for outputs near zero.
    """

    name: str
    model: Callable[[], Model]
    inputs: tuple[Array, ...]
    golden: Callable[..., Sequence[Array]]
    rtol: float = 0.0
    atol: float = 0.0

    def expected(self) -> list[Array]:
        """Expected outputs."""
        return [np.asarray(output) for output in self.golden(*self.inputs)]

    def check(self, outputs: Sequence[Array]) -> None:
        """Compare a model's outputs with the expected ones.

        Raises:
            AssertionError: they differ by more than the case allows.
        """
        expected_outputs = self.expected()
        assert len(outputs) == len(expected_outputs), (
            f"{self.name}: {len(outputs)} outputs, {len(expected_outputs)} expected"
        )
        for output, expected in zip(outputs, expected_outputs, strict=True):
            assert output.dtype == expected.dtype, f"{self.name}: {output.dtype} for {expected.dtype}"
            if self.rtol or self.atol:
                np.testing.assert_allclose(output, expected, self.rtol, self.atol, err_msg=self.name)
            else:
                np.testing.assert_array_equal(output, expected, err_msg=self.name)


# About a hundred float32 roundings for sums, and a few for operators that call the C library.
_SUMS = {"rtol": 1e-5, "atol": 1e-5}
_MATH = {"rtol": 2e-6, "atol": 1e-7}


def _floats(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def _integers(dtype: str, *shape: int, seed: int = 0, low: int | None = None, high: int | None = None) -> Array:
    limits = np.iinfo(dtype)
    smallest = limits.min if low is None else low
    largest = limits.max if high is None else high
    return np.random.default_rng(seed).integers(smallest, largest, shape, dtype, endpoint=True)


def onnx_case_model(
    operator: str,
    inputs: Sequence[Array],
    outputs: Sequence[tuple[tuple[int, ...], str]],
    constants: Sequence[Array | None] = (),
    **attributes: Any,
) -> Model:
    """Build a model of one ONNX node.

    Args:
        inputs: example inputs.
        outputs: shape and element type of each result.
        constants: further inputs of the node whose values belong to the model; None leaves one out.
    """
    names = [f"x{number}" for number in range(len(inputs))]
    stored = [f"c{number}" if array is not None else "" for number, array in enumerate(constants)]
    results = [f"y{number}" for number in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(operator, names + stored, results, **attributes)],
        operator,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=True)
        ],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (shape, dtype) in zip(results, outputs, strict=True)
        ],
        [
            numpy_helper.from_array(array, name)
            for name, array in zip(stored, constants, strict=True)
            if array is not None
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return from_onnx(proto.SerializeToString(deterministic=True), operator.lower())


def _onnx(
    name: str,
    operator: str,
    inputs: Sequence[Array],
    golden: Callable[..., Any],
    constants: Sequence[Array | None] = (),
    rtol: float = 0.0,
    atol: float = 0.0,
    **attributes: Any,
) -> OperatorCase:
    def expected(*arrays: Array) -> list[Array]:
        result = golden(*arrays)
        return list(result) if isinstance(result, (list, tuple)) else [np.asarray(result)]

    def model() -> Model:
        outputs = [(output.shape, str(output.dtype)) for output in expected(*inputs)]
        return onnx_case_model(operator, inputs, outputs, constants, **attributes)

    return OperatorCase(name, model, tuple(inputs), expected, rtol, atol)


def _relax(
    name: str,
    build: Callable[..., Any],
    inputs: Sequence[Array],
    golden: Callable[..., Any],
    rtol: float = 0.0,
    atol: float = 0.0,
) -> OperatorCase:
    """Build a case of a Relax expression; ``build`` receives ``relax.op`` and the inputs' variables."""

    def model() -> Model:
        from tvm import relax  # takes a second, and most cases do without

        variables = [
            relax.Var(f"x{number}", relax.TensorType(array.shape, str(array.dtype)))
            for number, array in enumerate(inputs)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", variables):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(build(relax.op, *variables)))
            builder.emit_func_output(result)
        return from_relax(builder.get(), name)

    def expected(*arrays: Array) -> list[Array]:
        result = golden(*arrays)
        return list(result) if isinstance(result, (list, tuple)) else [np.asarray(result)]

    return OperatorCase(name, model, tuple(inputs), expected, rtol, atol)


def _conv2d(
    x: Array, w: Array, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1, dtype: str = "float64"
) -> Array:
    """Convolve NCHW with OIHW, following the definition."""
    padded = np.pad(x.astype(dtype), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    outputs, inputs, rows, columns = w.shape
    height = (padded.shape[2] - dilation * (rows - 1) - 1) // stride + 1
    width = (padded.shape[3] - dilation * (columns - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], outputs, height, width), dtype)
    for channel in range(outputs):
        first = channel // (outputs // groups) * inputs
        for row in range(height):
            for column in range(width):
                window = padded[
                    :,
                    first : first + inputs,
                    row * stride : row * stride + dilation * (rows - 1) + 1 : dilation,
                    column * stride : column * stride + dilation * (columns - 1) + 1 : dilation,
                ]
                result[:, channel, row, column] = (window * w[channel].astype(dtype)).sum((1, 2, 3))
    return result


def _conv_case(
    name: str, x: Array, w: Array, bias: Array | None = None, stride: int = 1, pad: int = 0, dilation: int = 1,
    groups: int = 1,
) -> OperatorCase:  # fmt: skip
    def golden(data: Array) -> Array:
        result = _conv2d(data, w, stride, pad, dilation, groups)
        if bias is not None:
            result += bias.reshape(1, -1, 1, 1)
        return result.astype(np.float32)

    return _onnx(
        name, "Conv", [x], golden, [w] if bias is None else [w, bias], **_SUMS,
        strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2, group=groups,
    )  # fmt: skip


def _pool(x: Array, size: int, stride: int, pad: int, reduce: Callable[..., Array], fill: float) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    rows = (padded.shape[2] - size) // stride + 1
    columns = (padded.shape[3] - size) // stride + 1
    windows = [
        [
            reduce(padded[:, :, r * stride : r * stride + size, c * stride : c * stride + size], axis=(2, 3))
            for c in range(columns)
        ]
        for r in range(rows)
    ]
    return np.transpose(np.array(windows), (2, 3, 0, 1)).astype(x.dtype)


def _softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of the standard library, in double precision, to each element."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(np.float32)


def _wrapped(operation: Callable[..., Array]) -> Callable[..., Array]:
    """Compute with numpy's wrap-around, without its warnings."""

    def compute(*arrays: Array) -> Array:
        with np.errstate(over="ignore"):
            return operation(*arrays)

    return compute


def _nearest(x: Array) -> Array:
    return x.repeat(2, axis=2).repeat(2, axis=3)


_IMAGE = _floats(1, 4, 7, 7, seed=1)
_ROWS = _floats(3, 10, seed=2)
_POSITIVE = _floats(3, 10, seed=3, low=0.1, high=9.0)
_BYTES = _integers("int8", 4, 33, seed=4)
_OTHER_BYTES = np.where(_integers("int8", 4, 33, seed=5) == 0, 7, _integers("int8", 4, 33, seed=5)).astype(np.int8)
_WORDS = _integers("int32", 4, 9, seed=6)
_OTHER_WORDS = _integers("int32", 4, 9, seed=7)

CONVOLUTIONS = [
    _conv_case("conv2d", _IMAGE, _floats(6, 4, 3, 3, seed=10)),
    _conv_case("conv2d_padding_bias", _IMAGE, _floats(6, 4, 3, 3, seed=11), _floats(6, seed=12), pad=1),
    _conv_case("conv2d_stride", _IMAGE, _floats(5, 4, 3, 3, seed=13), stride=2, pad=1),
    _conv_case("conv2d_dilation", _IMAGE, _floats(3, 4, 2, 2, seed=14), dilation=2),
    _conv_case("conv2d_groups", _IMAGE, _floats(6, 2, 3, 3, seed=15), pad=1, groups=2),
    _conv_case("conv2d_depthwise", _IMAGE, _floats(4, 1, 3, 3, seed=16), pad=1, groups=4),
    _conv_case("conv2d_pointwise", _IMAGE, _floats(8, 4, 1, 1, seed=17)),
    _relax(
        "conv2d_nhwc",
        lambda op, x, w: op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        [_IMAGE.transpose(0, 2, 3, 1).copy(), _floats(3, 3, 4, 5, seed=18)],
        lambda x, w: (
            _conv2d(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), pad=1).transpose(0, 2, 3, 1).astype(np.float32)
        ),
        **_SUMS,
    ),
    _relax(
        "conv2d_int8",
        lambda op, x, w: op.nn.conv2d(x, w, padding=1, out_dtype="int32"),
        [_integers("int8", 1, 3, 6, 6, seed=19), _integers("int8", 4, 3, 3, 3, seed=20)],
        lambda x, w: _conv2d(x, w, pad=1, dtype="int64").astype(np.int32),
    ),
]

PRODUCTS = [
    _onnx(
        "dense", "Gemm", [_ROWS], lambda x: (x @ _floats(7, 10, seed=21).T + _floats(7, seed=22)),
        [_floats(7, 10, seed=21), _floats(7, seed=22)], **_SUMS, transB=1,
    ),
    _onnx("matmul", "MatMul", [_ROWS, _floats(10, 6, seed=23)], lambda a, b: a @ b, **_SUMS),
    _onnx("matmul_batched", "MatMul", [_floats(2, 3, 4, seed=24), _floats(2, 4, 5, seed=25)], np.matmul, **_SUMS),
    _relax(
        "matmul_int8",
        lambda op, a, b: op.matmul(a, b, out_dtype="int32"),
        [_integers("int8", 5, 64, seed=26), _integers("int8", 64, 3, seed=27)],
        lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
    ),
    _onnx(
        "matmul_integer", "MatMulInteger",
        [_integers("uint8", 3, 12, seed=28), _integers("int8", 12, 4, seed=29)],
        lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
    ),
]  # fmt: skip

POOLS = [
    _onnx(
        "max_pool", "MaxPool", [_IMAGE], lambda x: _pool(x, 2, 2, 0, np.max, -np.inf),
        kernel_shape=[2, 2], strides=[2, 2],
    ),
    _onnx(
        "max_pool_padding", "MaxPool", [_IMAGE - 5], lambda x: _pool(x, 3, 2, 1, np.max, -np.inf),
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
    ),
    _onnx(
        "average_pool", "AveragePool", [_IMAGE], lambda x: _pool(x, 3, 1, 0, np.mean, 0.0),
        kernel_shape=[3, 3], **_SUMS,
    ),
    _onnx(
        "global_average_pool", "GlobalAveragePool", [_IMAGE], lambda x: x.mean((2, 3), keepdims=True), **_SUMS
    ),
    _relax(
        "max_pool_int8",
        lambda op, x: op.nn.max_pool2d(x, (2, 2), (2, 2)),
        [_integers("int8", 1, 3, 6, 6, seed=30)],
        lambda x: _pool(x, 2, 2, 0, np.max, -128),
    ),
]  # fmt: skip

ACTIVATIONS = [
    _onnx("relu", "Relu", [_ROWS], lambda x: np.maximum(x, np.float32(0))),
    _onnx("leaky_relu", "LeakyRelu", [_ROWS], lambda x: np.where(x < 0, x * np.float32(0.1), x), alpha=0.1),
    _onnx(
        "clip", "Clip", [_ROWS * 4], lambda x: np.clip(x, np.float32(0), np.float32(6)),
        [np.array(0, np.float32), np.array(6, np.float32)],
    ),
    _onnx("sigmoid", "Sigmoid", [_ROWS * 3], _elementwise(lambda v: 1 / (1 + math.exp(-v))), **_MATH),
    _onnx("tanh", "Tanh", [_ROWS], _elementwise(math.tanh), **_MATH),
    _onnx("softmax", "Softmax", [_ROWS * 3], _softmax, axis=-1, **_MATH),
    _onnx("exp", "Exp", [_ROWS * 3], _elementwise(math.exp), **_MATH),
    _onnx("log", "Log", [_POSITIVE], _elementwise(math.log), **_MATH),
    _onnx("sqrt", "Sqrt", [_POSITIVE], np.sqrt),
    _onnx("erf", "Erf", [_ROWS], _elementwise(math.erf), **_MATH),
    _relax(
        "gelu",
        lambda op, x: op.nn.gelu(x),
        [_ROWS],
        _elementwise(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2)))),
        rtol=1e-5,
        atol=1e-6,
    ),
    _onnx("sin", "Sin", [_ROWS * 3], _elementwise(math.sin), rtol=2e-6, atol=1e-6),
    _onnx("round", "Round", [_floats(4, 16, seed=31) * 8 // np.float32(0.5) / 2], np.round),
    _onnx("floor", "Floor", [_ROWS * 5], np.floor),
    _onnx("ceil", "Ceil", [_ROWS * 5], np.ceil),
    _onnx("abs", "Abs", [_ROWS], np.abs),
    _onnx("pow", "Pow", [_POSITIVE], lambda x: np.power(x.astype(np.float64), 2.5).astype(np.float32),
          [np.array(2.5, np.float32)], rtol=1e-5),
]  # fmt: skip

ARITHMETIC = [
    _onnx("add_broadcast", "Add", [_IMAGE, _floats(1, 4, 1, 1, seed=32)], np.add),
    _onnx("sub_broadcast", "Sub", [_ROWS, _floats(10, seed=33)], np.subtract),
    _onnx("mul", "Mul", [_ROWS, _POSITIVE], np.multiply),
    _onnx("div", "Div", [_ROWS, _POSITIVE], np.divide),
    _onnx("add_scalar", "Add", [np.float32(1.5).reshape(()), np.float32(2.25).reshape(())], np.add),
    _onnx("add_int8", "Add", [_BYTES, _OTHER_BYTES], _wrapped(np.add)),
    _onnx("mul_int8", "Mul", [_BYTES, _OTHER_BYTES], _wrapped(np.multiply)),
    _onnx("sub_uint8", "Sub", [_BYTES.view(np.uint8), _OTHER_BYTES.view(np.uint8)], _wrapped(np.subtract)),
    _onnx("mul_uint16", "Mul", [_integers("uint16", 5, 8, seed=34), _integers("uint16", 5, 8, seed=35)],
          _wrapped(np.multiply)),
    _onnx("mul_int16", "Mul", [_integers("int16", 5, 8, seed=36), _integers("int16", 5, 8, seed=37)],
          _wrapped(np.multiply)),
    _onnx("add_int32", "Add", [_WORDS, _OTHER_WORDS], _wrapped(np.add)),
    _onnx("mul_int32", "Mul", [_WORDS, _OTHER_WORDS], _wrapped(np.multiply)),
    _onnx("neg_int32", "Neg", [_WORDS], _wrapped(np.negative)),
    _relax("floor_divide_int8", lambda op, a, b: op.floor_divide(a, b),
           [np.maximum(_BYTES, -127), _OTHER_BYTES], np.floor_divide),
    _relax("floor_mod_int8", lambda op, a, b: op.floor_mod(a, b), [_BYTES, _OTHER_BYTES], np.mod),
    _relax("floor_divide_int32", lambda op, a, b: op.floor_divide(a, b), [_WORDS, _OTHER_WORDS | 1],
           np.floor_divide),
    _relax("floor_mod_int32", lambda op, a, b: op.floor_mod(a, b), [_WORDS, _OTHER_WORDS | 1], np.mod),
    _relax("floor_mod_float", lambda op, a, b: op.floor_mod(a, b), [_ROWS * 3, _POSITIVE], np.mod, **_SUMS),
    _onnx("fmod", "Mod", [_ROWS * 3, _POSITIVE], np.fmod, fmod=1),
    _onnx("is_nan", "IsNaN", [np.array([1, np.nan, np.inf], np.float32)], np.isnan),
    _onnx("is_inf", "IsInf", [np.array([1, np.nan, -np.inf, np.inf], np.float32)], np.isinf),
    _relax("right_shift_int32", lambda op, a, b: op.right_shift(a, b),
           [_WORDS, _integers("int32", 4, 9, seed=38, low=0, high=31)], np.right_shift),
    _relax("left_shift_int32", lambda op, a, b: op.left_shift(a, b),
           [_WORDS, _integers("int32", 4, 9, seed=39, low=0, high=31)], np.left_shift),
    _relax("bitwise", lambda op, a, b: op.bitwise_xor(op.bitwise_and(a, b), op.bitwise_not(op.bitwise_or(a, b))),
           [_BYTES.view(np.uint8), _OTHER_BYTES.view(np.uint8)], lambda a, b: (a & b) ^ ~(a | b)),
    # Intermediate sums that wrap around, unlike C's int.
    _relax("wrap_then_compare_int8", lambda op, a, b: op.greater(op.add(a, b), op.subtract(a, b)),
           [_BYTES, _OTHER_BYTES], _wrapped(lambda a, b: a + b > a - b)),
    _relax("wrap_then_shift_uint8", lambda op, a, b, n: op.right_shift(op.multiply(a, b), n),
           [_BYTES.view(np.uint8), _OTHER_BYTES.view(np.uint8), _integers("uint8", 4, 33, seed=45, low=1, high=7)],
           _wrapped(lambda a, b, n: (a * b) >> n)),
    _onnx("maximum_int8", "Max", [_BYTES, _OTHER_BYTES], np.maximum),
    _onnx("minimum_uint8", "Min", [_BYTES.view(np.uint8), _OTHER_BYTES.view(np.uint8)], np.minimum),
]  # fmt: skip

REDUCTIONS = [
    _onnx("argmax", "ArgMax", [_ROWS], lambda x: x.argmax(1), axis=1, keepdims=0),
    _onnx("argmin_int8", "ArgMin", [_BYTES], lambda x: x.argmin(1), axis=1, keepdims=0),
    _onnx("argmax_keepdims", "ArgMax", [_IMAGE], lambda x: x.argmax(2, keepdims=True), axis=2, keepdims=1),
    # No element exceeds the initial value of a search.
    _onnx("argmax_of_lowest", "ArgMax", [np.full_like(_BYTES, -128)], lambda x: x.argmax(1), axis=1, keepdims=0),
    _onnx("argmin_of_infinity", "ArgMin", [np.full_like(_ROWS, np.inf)], lambda x: x.argmin(0),
          axis=0, keepdims=0),
    _onnx("reduce_sum", "ReduceSum", [_IMAGE], lambda x: x.sum((1, 3)), [np.array([1, 3])], keepdims=0, **_SUMS),
    _onnx("reduce_mean", "ReduceMean", [_IMAGE], lambda x: x.mean((2, 3), keepdims=True),
          [np.array([2, 3])], **_SUMS),
    _onnx("reduce_max_int32", "ReduceMax", [_WORDS], lambda x: x.max(0, keepdims=True), [np.array([0])]),
    _onnx("reduce_prod", "ReduceProd", [_ROWS[:, :5].copy()], lambda x: x.prod(1), [np.array([1])], keepdims=0,
          **_SUMS),
]  # fmt: skip

SHAPES = [
    _onnx("transpose", "Transpose", [_IMAGE], lambda x: x.transpose(0, 2, 3, 1), perm=[0, 2, 3, 1]),
    _onnx("concat", "Concat", [_ROWS, _POSITIVE], lambda a, b: np.concatenate([a, b], 1), axis=1),
    _onnx("split", "Split", [_ROWS], lambda x: np.split(x, [3, 7], 1), [np.array([3, 4, 3])], axis=1),
    _onnx("pad", "Pad", [_ROWS], lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=1.5),
          [np.array([1, 0, 2, 3]), np.array(1.5, np.float32)]),
    _onnx("slice", "Slice", [_ROWS], lambda x: x[:, 8:1:-2],
          [np.array([8]), np.array([1]), np.array([1]), np.array([-2])]),
    _onnx("gather", "Gather", [_ROWS, np.array([[2, 0], [1, 1]])], lambda x, i: x[i], axis=0),
    _onnx("where", "Where", [_ROWS > 0, _ROWS, _POSITIVE], np.where),
    _onnx("less", "Less", [_BYTES, _OTHER_BYTES], np.less),
    _onnx("equal", "Equal", [_BYTES % 3, _OTHER_BYTES % 3], np.equal),
    _onnx("and", "And", [_BYTES > 0, _OTHER_BYTES > 0], np.logical_and),
    _onnx("not", "Not", [_BYTES > 0], np.logical_not),
    _onnx("cast_to_int8", "Cast", [_ROWS * 50], lambda x: x.astype(np.int8), to=TensorProto.INT8),
    _onnx("cast_int32_to_uint8", "Cast", [_WORDS], lambda x: x.astype(np.uint8), to=TensorProto.UINT8),
    _onnx("cast_to_float", "Cast", [_WORDS], lambda x: x.astype(np.float32), to=TensorProto.FLOAT),
    _onnx("cast_to_bool", "Cast", [_BYTES // 64], lambda x: x.astype(np.bool_), to=TensorProto.BOOL),
    _onnx("resize_nearest", "Resize", [_IMAGE], _nearest, [None, np.array([1, 1, 2, 2], np.float32)],
          mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    _onnx("tile", "Tile", [_ROWS], lambda x: np.tile(x, (2, 1)), [np.array([2, 1])]),
    _onnx("expand", "Expand", [_ROWS[:, :1].copy()], lambda x: np.broadcast_to(x, (3, 4)).copy(),
          [np.array([3, 4])]),
    _onnx("reshape", "Reshape", [_ROWS], lambda x: x.reshape(5, 6), [np.array([5, 6])]),
    _onnx("depth_to_space", "DepthToSpace", [_IMAGE],
          lambda x: x.reshape(1, 2, 2, 1, 7, 7).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 14, 14), blocksize=2),
]  # fmt: skip

NORMALISATIONS = [
    _onnx(
        "batch_norm", "BatchNormalization", [_IMAGE],
        lambda x: (x - _floats(4, seed=43).reshape(1, 4, 1, 1))
        / np.sqrt(_floats(4, seed=44, low=0.5, high=2).reshape(1, 4, 1, 1) + np.float32(1e-5))
        * _floats(4, seed=41).reshape(1, 4, 1, 1) + _floats(4, seed=42).reshape(1, 4, 1, 1),
        [_floats(4, seed=41), _floats(4, seed=42), _floats(4, seed=43), _floats(4, seed=44, low=0.5, high=2)],
        **_SUMS,
    ),
    _onnx(
        "layer_norm", "LayerNormalization", [_ROWS],
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5)),
        [np.ones(10, np.float32)], **_SUMS, axis=-1,
    ),
]  # fmt: skip

OPERATOR_CASES: tuple[OperatorCase, ...] = (
    *CONVOLUTIONS,
    *PRODUCTS,
    *POOLS,
    *ACTIVATIONS,
    *ARITHMETIC,
    *REDUCTIONS,
    *SHAPES,
    *NORMALISATIONS,
)
