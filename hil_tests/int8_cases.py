# SPDX-License-Identifier: Apache-2.0
"""int8 operators in small TFLite models, for the tests on the host and the suite on a board.

The expected outputs are those of TensorFlow Lite Micro's reference kernels, bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from models.tflite_writer import Builder

Array = npt.NDArray[Any]

_SOFTMAX_SCALE = 1 / 256
_RUNS = 4


@dataclass(frozen=True)
class Quantised:
    """A tensor of a case.

    Attributes:
        shape: dimensions.
        scale, zero: quantisation.
        dtype: element type.
    """

    shape: tuple[int, ...]
    scale: float = 0.05
    zero: int = 3
    dtype: str = "int8"


_IMAGE = Quantised((1, 7, 9, 5))


@dataclass(frozen=True)
class Int8Case:
    """One small model.

    Attributes:
        name: name of the case.
        content: builds the file.
        shapes: shapes of the inputs.
        dtypes: element types of the inputs.
    """

    name: str
    content: Callable[[], bytes]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def runs(self) -> list[list[Array]]:
        """Inputs for several runs: random values and extremes."""
        generator = np.random.default_rng(len(self.name))
        low, high = self._filled(-128), self._filled(127)
        return [low, high, *([self._random(generator) for _ in range(_RUNS)])]

    def _filled(self, value: int) -> list[Array]:
        return [np.full(shape, value, dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]

    def _random(self, generator: np.random.Generator) -> list[Array]:
        return [
            generator.uniform(-8, 8, shape).astype(dtype)
            if dtype == "float32"
            else generator.integers(-128, 128, shape).astype(dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]


def operator_model(
    operator: str,
    inputs: Sequence[Quantised],
    output: Quantised,
    constants: Sequence[tuple[Array, dict[str, Any]]] = (),
    **options: Any,
) -> bytes:
    """Build a TFLite file with one operator.

    Args:
        constants: further inputs: their elements, and other arguments of :meth:`Builder.tensor`.
    """
    builder = Builder()
    names = [_add(builder, f"x{number}", item) for number, item in enumerate(inputs)]
    stored = [
        builder.tensor(f"c{number}", array.shape, str(array.dtype), array, **keywords)
        for number, (array, keywords) in enumerate(constants)
    ]
    result = _add(builder, "y", output)
    builder.operator(operator, [*names, *stored], [result], **options)
    return builder.finish(names, [result])


def _add(builder: Builder, name: str, item: Quantised) -> str:
    """Add an input or output tensor to a model."""
    if item.dtype == "float32":
        return builder.tensor(name, item.shape, item.dtype)
    return builder.tensor(name, item.shape, item.dtype, scale=item.scale, zero_point=item.zero)


def _case(
    name: str,
    operator: str,
    inputs: Sequence[Quantised],
    output: Quantised,
    constants: Sequence[tuple[Array, dict[str, Any]]] = (),
    **options: Any,
) -> Int8Case:
    content = partial(operator_model, operator, inputs, output, constants, **options)
    return Int8Case(name, content, tuple(item.shape for item in inputs), tuple(item.dtype for item in inputs))


def convolution(
    name: str,
    source: Quantised,
    output: Quantised,
    kernel: tuple[int, int],
    *,
    depthwise: bool = False,
    per_channel: bool = True,
    **options: Any,
) -> Int8Case:
    """Build a case of a convolution with random weights."""
    generator = np.random.default_rng(len(name))
    inputs, outputs = source.shape[-1], output.shape[-1]
    shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, inputs)
    scales = generator.uniform(0.002, 0.02, outputs if per_channel else 1).astype(np.float32)
    axis = 3 if depthwise and per_channel else 0
    constants = [
        (generator.integers(-127, 128, shape).astype(np.int8), {"scale": scales, "axis": axis}),
        (generator.integers(-4000, 4000, outputs).astype(np.int32), {"scale": np.float32(source.scale) * scales}),
    ]
    if depthwise:
        options["depth_multiplier"] = outputs // inputs
    operator = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return _case(name, operator, [source], output, constants, **options)


def _dense(name: str, source: Quantised, output: Quantised, *, bias: bool = True, **options: Any) -> Int8Case:
    generator = np.random.default_rng(len(name))
    shape = (output.shape[-1], source.shape[-1])
    scale = np.float32(0.0123)
    constants = [(generator.integers(-127, 128, shape).astype(np.int8), {"scale": scale})]
    if bias:
        numbers = generator.integers(-3000, 3000, shape[0]).astype(np.int32)
        constants.append((numbers, {"scale": np.float32(source.scale) * scale}))
    return _case(name, "FULLY_CONNECTED", [source], output, constants, **options)


def _pad(name: str, widths: Sequence[Sequence[int]], output: tuple[int, ...]) -> Int8Case:
    source = Quantised((1, 4, 5, 3))
    return _case(name, "PAD", [source], Quantised(output), [(np.array(widths, np.int32), {})])


def _pool(
    name: str, kind: str, sides: tuple[int, int], window: tuple[int, int], stride: int, **options: Any
) -> Int8Case:
    sizes = {"filter_height": window[0], "filter_width": window[1], "stride_h": stride, "stride_w": stride}
    return _case(name, f"{kind}_POOL_2D", [_IMAGE], Quantised((1, *sides, 5)), **sizes, **options)


def _mean(name: str, axes: Sequence[int], output: Quantised, **options: Any) -> Int8Case:
    return _case(name, "MEAN", [Quantised((1, 5, 6, 7))], output, [(np.array(axes, np.int32), {})], **options)


def _relu6_block() -> bytes:
    """Build a file with a block of MobileNetV2: expand, depthwise, project, add."""
    generator = np.random.default_rng(5)
    builder = Builder()
    builder.tensor("x", (1, 6, 6, 8), "int8", scale=0.05, zero_point=-3)
    shapes = {"expand": (24, 1, 1, 8), "depthwise": (1, 3, 3, 24), "project": (8, 1, 1, 24)}
    source, source_scale = "x", 0.05
    for name, shape in shapes.items():
        outputs = shape[-1] if name == "depthwise" else shape[0]
        scales = generator.uniform(0.002, 0.02, outputs).astype(np.float32)
        weights = generator.integers(-127, 128, shape)
        axis = 3 if name == "depthwise" else 0
        builder.tensor(f"{name}_weights", shape, "int8", weights, scale=scales, axis=axis)
        bias = generator.integers(-1000, 1000, outputs)
        builder.tensor(f"{name}_bias", (outputs,), "int32", bias, scale=np.float32(source_scale) * scales)
        scale, zero = (0.03, 5) if name == "project" else (6 / 255, -128)
        builder.tensor(name, (1, 6, 6, outputs), "int8", scale=scale, zero_point=zero)
        builder.operator(
            "DEPTHWISE_CONV_2D" if name == "depthwise" else "CONV_2D",
            [source, f"{name}_weights", f"{name}_bias"],
            [name],
            padding="SAME",
            fused_activation_function="NONE" if name == "project" else "RELU6",
        )
        source, source_scale = name, scale
    builder.tensor("y", (1, 6, 6, 8), "int8", scale=0.06, zero_point=1)
    builder.operator("ADD", ["x", "project"], ["y"])
    return builder.finish(["x"], ["y"])


def _float_borders() -> bytes:
    """Build a file with float input and output and an activation between them."""
    builder = Builder()
    builder.tensor("x", (1, 33), "float32")
    builder.tensor("q", (1, 33), "int8", scale=0.0625, zero_point=-7)
    builder.tensor("r", (1, 33), "int8", scale=0.03, zero_point=-128)
    builder.tensor("y", (1, 33), "float32")
    builder.operator("QUANTIZE", ["x"], ["q"])
    builder.operator("RELU", ["q"], ["r"])
    builder.operator("DEQUANTIZE", ["r"], ["y"])
    return builder.finish(["x"], ["y"])


def _padded_convolution() -> bytes:
    """Build a file with zero padding and a convolution."""
    generator = np.random.default_rng(6)
    builder = Builder()
    builder.tensor("x", (1, 7, 8, 3), "int8", scale=0.05, zero_point=11)
    builder.tensor("widths", (4, 2), "int32", [[0, 0], [1, 2], [0, 1], [0, 0]])
    builder.tensor("padded", (1, 10, 9, 3), "int8", scale=0.05, zero_point=11)
    builder.tensor("weights", (4, 3, 3, 3), "int8", generator.integers(-127, 128, (4, 3, 3, 3)), scale=0.01)
    builder.tensor("bias", (4,), "int32", generator.integers(-1000, 1000, 4), scale=0.0005)
    builder.tensor("y", (1, 4, 4, 4), "int8", scale=0.08, zero_point=-20)
    builder.operator("PAD", ["x", "widths"], ["padded"])
    options = {"stride_h": 2, "stride_w": 2, "padding": "VALID"}
    builder.operator("CONV_2D", ["padded", "weights", "bias"], ["y"], **options)
    return builder.finish(["x"], ["y"])


def _split_and_add() -> bytes:
    """Build a file that adds the two halves of its input's channels."""
    builder = Builder()
    builder.tensor("axis", (), "int32", 3)
    builder.tensor("x", (1, 4, 3, 10), "int8", scale=0.05, zero_point=3)
    for half in ("low", "high"):
        builder.tensor(half, (1, 4, 3, 5), "int8", scale=0.05, zero_point=3)
    builder.tensor("y", (1, 4, 3, 5), "int8", scale=0.08, zero_point=-2)
    builder.operator("SPLIT", ["axis", "x"], ["low", "high"], num_splits=2)
    builder.operator("ADD", ["low", "high"], ["y"])
    return builder.finish(["x"], ["y"])


_VECTOR = Quantised((1, 40), 0.11, -9)

INT8_CASES: tuple[Int8Case, ...] = (
    convolution("conv 3x3 same", _IMAGE, Quantised((1, 7, 9, 6), 0.3, -5), (3, 3), padding="SAME"),
    convolution(
        "conv 3x2 strides 2 relu",
        _IMAGE,
        Quantised((1, 3, 4, 6), 0.2, -128),
        (3, 2),
        stride_h=2,
        stride_w=2,
        padding="VALID",
        fused_activation_function="RELU",
    ),
    convolution("conv 1x1 one scale", _IMAGE, Quantised((1, 7, 9, 8), 0.2, 7), (1, 1), per_channel=False),
    convolution(
        "conv dilated relu6",
        _IMAGE,
        Quantised((1, 7, 9, 4), 0.05, -100),
        (3, 3),
        padding="SAME",
        dilation_h_factor=2,
        dilation_w_factor=2,
        fused_activation_function="RELU6",
    ),
    convolution("depthwise 3x3", _IMAGE, Quantised((1, 7, 9, 5), 0.1, 2), (3, 3), depthwise=True, padding="SAME"),
    convolution(
        "depthwise multiplier 2",
        _IMAGE,
        Quantised((1, 4, 5, 10), 0.1, 2),
        (3, 3),
        depthwise=True,
        padding="SAME",
        stride_h=2,
        stride_w=2,
    ),
    convolution(
        "depthwise of one channel",
        Quantised((1, 9, 8, 1)),
        Quantised((1, 9, 8, 6), 0.1, 2),
        (4, 3),
        depthwise=True,
        padding="SAME",
        fused_activation_function="RELU",
    ),
    convolution(
        "depthwise one scale",
        _IMAGE,
        Quantised((1, 5, 7, 5), 0.1, 2),
        (3, 3),
        depthwise=True,
        per_channel=False,
        padding="VALID",
    ),
    _dense("dense", _VECTOR, Quantised((1, 10), 0.3, 4)),
    _dense("dense relu", _VECTOR, Quantised((1, 7), 0.2, -128), fused_activation_function="RELU"),
    _dense("dense of several rows without bias", Quantised((3, 20)), Quantised((3, 6), 0.2, 1), bias=False),
    _case("add", "ADD", [_IMAGE, Quantised((1, 7, 9, 5), 0.02, -60)], Quantised((1, 7, 9, 5), 0.06, 8)),
    _case("add relu6", "ADD", [_IMAGE, _IMAGE], Quantised((1, 7, 9, 5), 0.03, -128), fused_activation_function="RELU6"),
    _case("add one row", "ADD", [_IMAGE, Quantised((1, 1, 1, 5), 0.3, 0)], Quantised((1, 7, 9, 5), 0.3, 8)),
    _case("sub", "SUB", [_IMAGE, Quantised((1, 7, 9, 5), 0.4, 12)], Quantised((1, 7, 9, 5), 0.2, -8)),
    _case("mul", "MUL", [_IMAGE, Quantised((1, 7, 9, 5), 0.02, -60)], Quantised((1, 7, 9, 5), 0.03, 8)),
    _case(
        "mul by channel relu",
        "MUL",
        [_IMAGE, Quantised((1, 1, 1, 5), 1 / 256, -128)],
        Quantised((1, 7, 9, 5), 0.03, -128),
        fused_activation_function="RELU",
    ),
    _pool("avg pool", "AVERAGE", (3, 4), (3, 2), 2, padding="VALID"),
    _pool("avg pool same relu", "AVERAGE", (4, 5), (3, 3), 2, padding="SAME", fused_activation_function="RELU"),
    _pool("avg pool whole", "AVERAGE", (1, 1), (7, 9), 1, padding="VALID"),
    _pool("max pool", "MAX", (3, 4), (2, 2), 2, padding="VALID"),
    _pool("max pool same relu6", "MAX", (4, 5), (3, 3), 2, padding="SAME", fused_activation_function="RELU6"),
    _mean("mean of image", (1, 2), Quantised((1, 1, 1, 7), 0.031, -4), keep_dims=True),
    _mean("mean same scale", (1, 2), Quantised((1, 7)), keep_dims=False),
    _mean("mean of channels", (3,), Quantised((1, 5, 6), 0.04, 9), keep_dims=False),
    _case("softmax", "SOFTMAX", [_VECTOR], Quantised((1, 40), _SOFTMAX_SCALE, -128)),
    _case("softmax rows", "SOFTMAX", [Quantised((6, 9), 0.3, 1)], Quantised((6, 9), _SOFTMAX_SCALE, -128)),
    _case("softmax beta", "SOFTMAX", [Quantised((2, 9))], Quantised((2, 9), _SOFTMAX_SCALE, -128), beta=0.7),
    _case("softmax fine", "SOFTMAX", [Quantised((1, 300), 0.004)], Quantised((1, 300), _SOFTMAX_SCALE, -128)),
    _case("logistic", "LOGISTIC", [Quantised((1, 256), 0.06, 5)], Quantised((1, 256), 1 / 256, -128)),
    _case("tanh", "TANH", [Quantised((1, 256), 0.02, -5)], Quantised((1, 256), 1 / 128, 0)),
    _case("relu", "RELU", [Quantised((1, 256), 0.05, 4)], Quantised((1, 256), 0.03, -128)),
    _case("relu6", "RELU6", [Quantised((1, 256), 0.05, 4)], Quantised((1, 256), 0.05, 4)),
    _case("leaky relu", "LEAKY_RELU", [Quantised((1, 256))], Quantised((1, 256), 0.04, -20), alpha=0.13),
    _case("hard swish", "HARD_SWISH", [Quantised((1, 256))], Quantised((1, 256), 0.04, -100)),
    _case("hard swish wide", "HARD_SWISH", [Quantised((1, 256), 0.9)], Quantised((1, 256), 0.8, -100)),
    _case("requantise", "QUANTIZE", [Quantised((1, 256), 0.05, 4)], Quantised((1, 256), 0.031, -12)),
    _pad("pad", [[0, 0], [1, 2], [0, 3], [0, 0]], (1, 7, 8, 3)),
    _pad("pad channels", [[0, 0], [0, 0], [1, 0], [2, 1]], (1, 4, 6, 6)),
    _case("concatenate", "CONCATENATION", [_IMAGE, Quantised((1, 7, 9, 2))], Quantised((1, 7, 9, 7)), axis=3),
    _case("reshape", "RESHAPE", [_IMAGE], Quantised((1, 63, 5)), [(np.array([1, 63, 5], np.int32), {})]),
    _case("transpose", "TRANSPOSE", [_IMAGE], Quantised((1, 5, 7, 9)), [(np.array([0, 3, 1, 2], np.int32), {})]),
    _case("maximum", "MAXIMUM", [_IMAGE, _IMAGE], _IMAGE),
    _case("minimum", "MINIMUM", [_IMAGE, _IMAGE], _IMAGE),
    _case(
        "nearest neighbour",
        "RESIZE_NEAREST_NEIGHBOR",
        [_IMAGE],
        Quantised((1, 14, 18, 5)),
        [(np.array([14, 18], np.int32), {})],
    ),
    _case(
        "strided slice",
        "STRIDED_SLICE",
        [_IMAGE],
        Quantised((1, 3, 4, 5)),
        [(np.array(numbers, np.int32), {}) for numbers in ([0, 1, 0, 0], [1, 7, 8, 5], [1, 2, 2, 1])],
    ),
    _case(
        "slice",
        "SLICE",
        [_IMAGE],
        Quantised((1, 4, 6, 2)),
        [(np.array(numbers, np.int32), {}) for numbers in ([0, 2, 1, 3], [1, 4, 6, 2])],
    ),
    _case("squeeze", "SQUEEZE", [Quantised((1, 9, 1, 5))], Quantised((9, 5)), squeeze_dims=[0, 2]),
    _case(
        "arg max",
        "ARG_MAX",
        [_VECTOR],
        Quantised((1,), dtype="int32"),
        [(np.array(1, np.int32), {})],
        output_type="INT32",
    ),
    _case("sum", "SUM", [_IMAGE], Quantised((1, 5), 0.3, -7), [(np.array([1, 2], np.int32), {})], keep_dims=False),
    Int8Case("split and add", _split_and_add, ((1, 4, 3, 10),), ("int8",)),
    Int8Case("inverted residual", _relu6_block, ((1, 6, 6, 8),), ("int8",)),
    Int8Case("padded convolution", _padded_convolution, ((1, 7, 8, 3),), ("int8",)),
    Int8Case("float borders", _float_borders, ((1, 33),), ("float32",)),
)
