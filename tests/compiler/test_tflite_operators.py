# SPDX-License-Identifier: Apache-2.0
"""All operators of TensorFlow Lite through the frontend, against the kernels of TensorFlow Lite Micro.

The model runs on this computer by TVM's LLVM backend, with the integers of the reference kernels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tflite_micro.python.tflite_micro import runtime

from models.tflite_writer import Builder
from utvm.compiler import from_tflite, reference

RANDOM = np.random.default_rng(7)
Shape = tuple[int, ...]
INT8 = {"scale": 0.05, "zero_point": -3}


@dataclass(frozen=True)
class Case:
    """A model and the allowed difference of its results, in steps of the output."""

    content: bytes
    steps: int = 0


def model(
    operator: str,
    shapes: list[Shape],
    result: Shape | list[Shape],
    *,
    dtype: str = "int8",
    result_dtype: str | None = None,
    constants: dict[int, Any] | None = None,
    scales: tuple[float, float] = (0.05, 0.05),
    zeros: tuple[int, int] = (-3, -3),
    **options: Any,
) -> bytes:
    """Build a model of one operator.

    Args:
        shapes: shapes of the inputs that are not constant, in order.
        constants: operands by position: int32 arrays, for shapes and axes.
        scales, zeros: quantisation of all inputs, and of the outputs.
    """
    builder, names = Builder(), []
    quantised = dtype in ("int8", "int16", "uint8")
    waiting = list(shapes)
    for position in range(len(shapes) + len(constants or {})):
        name = f"in/{position}"
        if constants and position in constants:
            array = np.asarray(constants[position], np.int32)
            builder.tensor(name, array.shape, "int32", array)
        else:
            parameters = {"scale": scales[0], "zero_point": zeros[0]} if quantised else {}
            builder.tensor(name, waiting.pop(0), dtype, **parameters)
        names.append(name)
    inputs = [name for position, name in enumerate(names) if position not in (constants or {})]
    results = [result] if isinstance(result, tuple) else result
    outputs = []
    for number, shape in enumerate(results):
        kind = result_dtype or dtype
        parameters = {"scale": scales[1], "zero_point": zeros[1]} if kind in ("int8", "int16", "uint8") else {}
        outputs.append(builder.tensor(f"out/{number}", shape, kind, **parameters))
    builder.operator(operator, names, outputs, **options)
    return builder.finish(inputs, outputs)


def layer(
    operator: str, shape: Shape, weights: Shape, result: Shape, channels: int, *, axis: int, **options: Any
) -> bytes:
    """An int8 model of one layer with per-channel weights and a bias."""
    builder = Builder()
    weight_scales = RANDOM.uniform(0.001, 0.01, channels).astype(np.float32)
    builder.tensor("in", shape, "int8", **INT8)
    builder.tensor("w", weights, "int8", RANDOM.integers(-127, 128, weights), scale=weight_scales, axis=axis)
    bias = RANDOM.integers(-2000, 2000, channels)
    builder.tensor("b", (channels,), "int32", bias, scale=weight_scales * np.float32(0.05))
    builder.tensor("out", result, "int8", scale=0.1, zero_point=5)
    builder.operator(operator, ["in", "w", "b"], ["out"], **options)
    return builder.finish(["in"], ["out"])


def unary(operator: str, *, scales: tuple[float, float] = (0.05, 0.05), **options: Any) -> bytes:
    return model(operator, [(1, 3, 4, 5)], (1, 3, 4, 5), scales=scales, zeros=(-3, 4), **options)


def binary(operator: str, other: Shape = (1, 3, 4, 5), **options: Any) -> bytes:
    return model(operator, [(1, 3, 4, 5), other], (1, 3, 4, 5), scales=(0.05, 0.1), **options)


IMAGE = (1, 6, 8, 4)
SIGMOID = {"scales": (0.05, 1 / 256), "zeros": (-3, -128)}

CASES: dict[str, Callable[[], Case]] = {
    "conv": lambda: Case(layer("CONV_2D", (1, 7, 6, 3), (5, 3, 3, 3), (1, 4, 3, 5), 5, axis=0, stride_w=2,
                               stride_h=2, padding="SAME", fused_activation_function="RELU")),
    "conv dilated": lambda: Case(layer("CONV_2D", (1, 9, 8, 3), (5, 3, 2, 3), (1, 5, 6, 5), 5, axis=0,
                                       dilation_h_factor=2, dilation_w_factor=2, padding="VALID",
                                       fused_activation_function="RELU6")),
    "depthwise": lambda: Case(layer("DEPTHWISE_CONV_2D", (1, 7, 6, 4), (1, 3, 3, 4), (1, 7, 6, 4), 4, axis=3,
                                    padding="SAME", fused_activation_function="RELU6")),
    "depthwise, 3 for each": lambda: Case(layer("DEPTHWISE_CONV_2D", (1, 7, 6, 2), (1, 3, 3, 6), (1, 5, 4, 6), 6,
                                                axis=3, padding="VALID", depth_multiplier=3)),
    "depthwise of one channel": lambda: Case(layer("DEPTHWISE_CONV_2D", (1, 7, 6, 1), (1, 3, 3, 4), (1, 5, 4, 4),
                                                   4, axis=3, padding="VALID", depth_multiplier=4)),
    "depthwise of one in, one out": lambda: Case(layer("DEPTHWISE_CONV_2D", (1, 7, 6, 1), (1, 3, 3, 1),
                                                       (1, 5, 4, 1), 1, axis=3, padding="VALID")),
    "dense": lambda: Case(layer("FULLY_CONNECTED", (1, 20), (7, 20), (1, 7), 7, axis=0)),
    "dense of an image": lambda: Case(layer("FULLY_CONNECTED", (1, 2, 5, 2), (7, 20), (1, 7), 7, axis=0,
                                            fused_activation_function="RELU")),
    "dense, dimensions kept": lambda: Case(layer("FULLY_CONNECTED", (1, 3, 20), (7, 20), (1, 3, 7), 7, axis=0,
                                                 keep_num_dims=True)),
    "add": lambda: Case(binary("ADD", fused_activation_function="RELU")),
    "add, spread": lambda: Case(binary("ADD", (1, 1, 1, 5))),
    "sub": lambda: Case(binary("SUB")),
    "mul": lambda: Case(binary("MUL", fused_activation_function="RELU6")),
    "maximum": lambda: Case(model("MAXIMUM", [(1, 3, 4), (1, 3, 4)], (1, 3, 4)), 0),
    "minimum": lambda: Case(model("MINIMUM", [(1, 3, 4), (1, 3, 4)], (1, 3, 4)), 0),
    "average pool": lambda: Case(model("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 4), filter_width=2, filter_height=2,
                                       stride_w=2, stride_h=2, padding="VALID")),
    "average pool, padded": lambda: Case(model("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 4), filter_width=3,
                                               filter_height=3, stride_w=2, stride_h=2, padding="SAME")),
    "max pool": lambda: Case(model("MAX_POOL_2D", [IMAGE], (1, 3, 4, 4), filter_width=3, filter_height=3,
                                   stride_w=2, stride_h=2, padding="SAME", fused_activation_function="RELU"), 0),
    "softmax": lambda: Case(model("SOFTMAX", [(2, 10)], (2, 10), beta=1.0, **SIGMOID)),
    "softmax, beta": lambda: Case(model("SOFTMAX", [(2, 10)], (2, 10), beta=0.3, **SIGMOID)),
    "logistic": lambda: Case(model("LOGISTIC", [(2, 40)], (2, 40), **SIGMOID)),
    "tanh": lambda: Case(model("TANH", [(2, 40)], (2, 40), scales=(0.05, 1 / 128), zeros=(-3, 0))),
    "relu": lambda: Case(unary("RELU", scales=(0.05, 0.03))),
    "relu6": lambda: Case(model("RELU6", [(3, 40)], (3, 40))),
    "leaky relu": lambda: Case(unary("LEAKY_RELU", alpha=0.125)),
    "hard swish": lambda: Case(unary("HARD_SWISH")),
    "quantise again": lambda: Case(unary("QUANTIZE", scales=(0.05, 0.11))),
    "dequantise": lambda: Case(model("DEQUANTIZE", [(3, 4)], (3, 4), result_dtype="float32"), 0),
    "mean": lambda: Case(model("MEAN", [IMAGE], (1, 4), constants={1: [1, 2]})),
    "sum": lambda: Case(model("SUM", [IMAGE], (1, 1, 1, 4), constants={1: [1, 2]}, scales=(0.05, 0.5),
                              keep_dims=True)),
    "concatenation": lambda: Case(model("CONCATENATION", [(1, 3, 2), (1, 3, 4)], (1, 3, 6), axis=-1), 0),
    "reshape": lambda: Case(model("RESHAPE", [(2, 6)], (3, 4), constants={1: [-1, 4]}), 0),
    "squeeze": lambda: Case(model("SQUEEZE", [(1, 1, 6)], (6,), squeeze_dims=[0, 1]), 0),
    "expand dims": lambda: Case(model("EXPAND_DIMS", [(2, 6)], (2, 1, 6), constants={1: 1}), 0),
    "transpose": lambda: Case(model("TRANSPOSE", [(1, 3, 4, 5)], (1, 5, 3, 4), constants={1: [0, 3, 1, 2]}), 0),
    "pad": lambda: Case(model("PAD", [(1, 3, 4, 2)], (1, 5, 7, 2),
                              constants={1: [[0, 0], [1, 1], [1, 2], [0, 0]]}), 0),
    "mirror pad": lambda: Case(model("MIRROR_PAD", [(1, 3, 4, 2)], (1, 5, 7, 2), mode="REFLECT",
                                     constants={1: [[0, 0], [1, 1], [1, 2], [0, 0]]}), 0),
    "split": lambda: Case(model("SPLIT", [(2, 6)], [(2, 2), (2, 2), (2, 2)], constants={0: 1}, num_splits=3), 0),
    "split at": lambda: Case(model("SPLIT_V", [(2, 6)], [(2, 1), (2, 5)], constants={1: [1, 5], 2: 1},
                                   num_splits=2), 0),
    "slice": lambda: Case(model("SLICE", [(3, 6)], (2, 3), constants={1: [1, 2], 2: [2, 3]}), 0),
    "strided slice": lambda: Case(model("STRIDED_SLICE", [(1, 6, 8, 2)], (1, 3, 4, 2), begin_mask=9, end_mask=9,
                                        constants={1: [0, 0, 1, 0], 2: [0, 6, 8, 0], 3: [1, 2, 2, 1]}), 0),
    "strided slice, one index": lambda: Case(model("STRIDED_SLICE", [(4, 6)], (6,), begin_mask=2, end_mask=2,
                                                   shrink_axis_mask=1,
                                                   constants={1: [2, 0], 2: [3, 0], 3: [1, 1]}), 0),
    "pack": lambda: Case(model("PACK", [(2, 3), (2, 3)], (2, 2, 3), values_count=2, axis=1), 0),
    "unpack": lambda: Case(model("UNPACK", [(2, 3)], [(3,), (3,)], num=2, axis=0), 0),
    "gather": lambda: Case(model("GATHER", [(4, 3)], (2, 3), constants={1: [2, 0]}, axis=0), 0),
    "depth to space": lambda: Case(model("DEPTH_TO_SPACE", [(1, 2, 3, 8)], (1, 4, 6, 2), block_size=2), 0),
    "space to depth": lambda: Case(model("SPACE_TO_DEPTH", [(1, 4, 6, 2)], (1, 2, 3, 8), block_size=2), 0),
    "resize nearest": lambda: Case(model("RESIZE_NEAREST_NEIGHBOR", [(1, 2, 3, 2)], (1, 4, 6, 2),
                                         constants={1: [4, 6]}), 0),
    "resize bilinear": lambda: Case(model("RESIZE_BILINEAR", [(1, 2, 3, 2)], (1, 4, 6, 2), constants={1: [4, 6]},
                                          half_pixel_centers=True)),
    "argmax": lambda: Case(model("ARG_MAX", [(2, 9)], (2,), constants={1: 1}, result_dtype="int32",
                                 output_type=2), 0),
    "less": lambda: Case(model("LESS", [(2, 9), (2, 9)], (2, 9), result_dtype="bool"), 0),
    "prelu": lambda: Case(model("PRELU", [(1, 3, 4, 5), (1, 1, 5)], (1, 3, 4, 5), scales=(0.05, 0.1))),
    "squared difference": lambda: Case(binary("SQUARED_DIFFERENCE")),
    "batch matmul": lambda: Case(model("BATCH_MATMUL", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), scales=(0.05, 0.6))),
    "float conv-less chain": lambda: Case(model("SOFTMAX", [(2, 5)], (2, 5), dtype="float32", beta=0.5), 0),
    "float softmax, beta": lambda: Case(model("SOFTMAX", [(40, 5)], (40, 5), dtype="float32", beta=3e38), 0),
    "float mean": lambda: Case(model("MEAN", [IMAGE], (1, 4), dtype="float32", constants={1: [1, 2]}), 0),
    "float pool": lambda: Case(model("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 4), dtype="float32", filter_width=3,
                                     filter_height=3, stride_w=2, stride_h=2, padding="SAME"), 0),
    "float argmax": lambda: Case(model("ARG_MAX", [(2, 9)], (2,), constants={1: -1}, dtype="float32",
                                       result_dtype="int32", output_type=2), 0),
    "int16 add": lambda: Case(model("ADD", [(2, 9), (2, 9)], (2, 9), dtype="int16", scales=(0.001, 0.002),
                                    zeros=(0, 0))),
    "bool": lambda: Case(model("LOGICAL_AND", [(2, 9), (2, 9)], (2, 9), dtype="bool"), 0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_operator_equals_the_reference_kernel(name: str) -> None:
    case = CASES[name]()
    interpreter = runtime.Interpreter.from_bytes(case.content)
    inputs = []
    number = 0
    while True:
        try:
            details = interpreter.get_input_details(number)
        except (IndexError, ValueError):
            break
        shape, dtype = tuple(details["shape"]), np.dtype(details["dtype"])
        inputs.append(_random(shape, dtype))
        interpreter.set_input(inputs[-1], number)
        number += 1
    interpreter.invoke()
    results = reference(from_tflite(case.content, "m"))(inputs)
    for number, result in enumerate(results):
        expected = interpreter.get_output(number)
        assert result.shape == expected.shape and result.dtype == expected.dtype
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        else:
            difference = np.abs(result.astype(np.int64) - expected.astype(np.int64))
            assert difference.max() <= case.steps, (result.ravel()[:9], expected.ravel()[:9])


def _random(shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "b":
        return RANDOM.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return RANDOM.normal(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)
