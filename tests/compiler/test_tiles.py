# SPDX-License-Identifier: Apache-2.0
"""Float sums in tiles equal numpy's sequential sums, bit for bit."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary
from onnx import TensorProto, helper, numpy_helper

from models.tflite_writer import Builder
from utvm import compiler
from utvm.compiler import ANY, Library, Target
from utvm.compiler.build import build_library

pytestmark = pytest.mark.slow

Array = npt.NDArray[np.float32]
FPU = Target("cortex-m7", ("dsp", "fpu"))


@dataclass(frozen=True)
class Shape:
    """A convolution, with extents as in ONNX."""

    channels: int = 3
    outputs: int = 4
    image: tuple[int, int] = (7, 9)
    filter: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    group: int = 1
    activation: str = ""


# Extents that tiles divide, and extents with a remainder on one or both axes.
SHAPES = [
    Shape(),
    Shape(outputs=8, image=(8, 10), pads=(1, 1, 1, 1), activation="Relu"),
    Shape(channels=5, outputs=7, image=(11, 13), filter=(5, 5), pads=(2, 2, 2, 2), activation="Relu"),
    Shape(channels=16, outputs=9, image=(6, 5), filter=(1, 1), activation="Sigmoid"),
    Shape(outputs=13, image=(17, 6), filter=(2, 4), strides=(2, 1), dilation=(1, 2), pads=(1, 0, 2, 1)),
    Shape(channels=6, outputs=6, pads=(1, 1, 1, 1), group=6, activation="Add"),
    Shape(channels=6, outputs=9, group=3, strides=(1, 3), activation="Relu"),
    Shape(channels=4, outputs=12, image=(5, 5), group=4, pads=(1, 0, 1, 0)),
    Shape(channels=31, outputs=1, image=(3, 3)),
    Shape(channels=1, outputs=17, image=(1, 23), filter=(1, 7), activation="SiLU"),
    Shape(channels=8, outputs=8, pads=(1, 1, 1, 1), activation="Add"),
]


def random_floats(generator: np.random.Generator, *shape: int) -> Array:
    """Numbers of very different magnitudes: a sum in another order has other bits."""
    return (generator.standard_normal(shape) * 10.0 ** generator.integers(-3, 4, shape)).astype(np.float32)


def convolve(x: Array, kernel: Array, shape: Shape) -> Array:
    """Convolve by loops over channels, rows and columns, outermost first."""
    top, left, bottom, right = shape.pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    extents = [(x.shape[2 + n] - shape.dilation[n] * (shape.filter[n] - 1) - 1) // shape.strides[n] + 1 for n in (0, 1)]
    inner, outer = shape.channels // shape.group, shape.outputs // shape.group
    total = np.zeros((1, shape.outputs, *extents), np.float32)
    first = np.arange(shape.outputs) // outer * inner
    for channel, row, column in itertools.product(range(inner), *map(range, shape.filter)):
        y, z = row * shape.dilation[0], column * shape.dilation[1]
        window = x[:, :, y : y + extents[0] * shape.strides[0] : shape.strides[0]]
        window = window[:, :, : extents[0], z : z + extents[1] * shape.strides[1] : shape.strides[1]]
        total += window[:, first + channel, :, : extents[1]] * kernel[:, channel, row, column][:, None, None]
    return total


def multiply(x: Array, y: Array) -> Array:
    """Multiply matrices by a loop over the inner extent."""
    total = np.zeros((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]), np.float32)
    for k in range(x.shape[-1]):
        total += x[..., k : k + 1] * y[..., k : k + 1, :]
    return total


class Models:
    """Many layers in one model, each with an input, a result, and its expected value."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(17)
        self.nodes: list[Any] = []
        self.inputs: list[Array] = []
        self.stored: dict[str, Array] = {}
        self.expected: dict[str, Array] = {}

    def convolution(self, shape: Shape) -> None:
        number = len(self.inputs)
        names = [f"{word}{number}" for word in "xwbc"]
        x = random_floats(self.generator, 1, shape.channels, *shape.image)
        kernel = random_floats(self.generator, shape.outputs, shape.channels // shape.group, *shape.filter)
        bias = random_floats(self.generator, shape.outputs)
        self.inputs.append(x)
        self.stored |= {names[1]: kernel, names[2]: bias}
        self.nodes.append(
            helper.make_node(
                "Conv",
                names[:3],
                names[3:],
                kernel_shape=shape.filter,
                strides=shape.strides,
                dilations=shape.dilation,
                pads=shape.pads,
                group=shape.group,
            )
        )
        result = convolve(x, kernel, shape) + bias[:, None, None]
        self._add_activation(shape.activation, number, x, result)

    def _add_activation(self, operator: str, number: int, x: Array, result: Array) -> None:
        before, name = f"c{number}", f"y{number}"
        if operator == "Relu":
            self.nodes.append(helper.make_node("Relu", [before], [name]))
            result = np.maximum(result, np.float32(0))
        elif operator == "Add":
            self.nodes.append(helper.make_node("Add", [before, f"x{number}"], [name]))
            result = result + x
        elif operator == "SiLU":
            # Two operators read the sum: it is neither stored nor computed twice.
            self.nodes.append(helper.make_node("HardSigmoid", [before], [f"h{number}"], alpha=0.25, beta=0.5))
            self.nodes.append(helper.make_node("Mul", [before, f"h{number}"], [name]))
            gate = result * np.float32(0.25) + np.float32(0.5)
            result = result * np.clip(gate, np.float32(0), np.float32(1))
        elif operator == "Sigmoid":
            # The exponential functions differ, so both results of the sum are outputs.
            self.nodes.append(helper.make_node("Neg", [before], [name]))
            self.expected[before] = result
            result = -result
        else:
            name = before
        self.expected[name] = result

    def product(self, left: Sequence[int], right: Sequence[int], constant: bool) -> None:
        number = len(self.inputs)
        x, y = random_floats(self.generator, *left), random_floats(self.generator, *right)
        names = [f"x{number}", f"w{number}"]
        self.inputs.append(x)
        if constant:
            self.stored[names[1]] = y
        else:
            self.inputs.append(y)
            names[1] = f"x{number + 1}"
        self.nodes.append(helper.make_node("MatMul", names, [f"y{number}"]))
        self.expected[f"y{number}"] = multiply(x, y)

    def pool(self, operator: str, image: tuple[int, int], **options: Any) -> None:
        number = len(self.inputs)
        x = random_floats(self.generator, 1, 5, *image)
        self.inputs.append(x)
        self.nodes.append(helper.make_node(operator, [f"x{number}"], [f"y{number}"], **options))
        self.expected[f"y{number}"] = pool_by_numpy(operator, x, **options)

    def library(self, target: Target) -> Library:
        def value_info(name: str, array: Array) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)

        graph = helper.make_graph(
            self.nodes,
            "tiles",
            [value_info(f"x{number}", array) for number, array in enumerate(self.inputs)],
            [value_info(name, expected_array) for name, expected_array in self.expected.items()],
            [numpy_helper.from_array(stored_array, name) for name, stored_array in self.stored.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return build_library(compiler.from_onnx(model.SerializeToString(), "tiles"), "tiles", target)


def pool_by_numpy(operator: str, x: Array, kernel_shape: Any, strides: Any, pads: Any) -> Array:
    """Pool; means ignore padding."""
    top, left, bottom, right = pads
    fill = -np.inf if operator == "MaxPool" else 0.0
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded, ones = np.pad(x, widths, constant_values=fill), np.pad(np.ones_like(x), widths)
    extents = [(padded.shape[2 + n] - kernel_shape[n]) // strides[n] + 1 for n in (0, 1)]
    total = np.full((*x.shape[:2], *extents), fill, np.float32)
    count = np.zeros_like(total)
    for row, column in itertools.product(*map(range, kernel_shape)):
        rows, columns = (
            slice(begin, begin + (extent - 1) * step + 1, step)
            for begin, extent, step in zip((row, column), extents, strides, strict=True)
        )
        window = padded[:, :, rows, columns]
        total = np.maximum(total, window) if operator == "MaxPool" else total + window
        count += ones[:, :, rows, columns]
    return total if operator == "MaxPool" else total / count


@pytest.fixture(scope="module")
def models() -> Models:
    models_with_layers = Models()
    for shape in SHAPES:
        models_with_layers.convolution(shape)
    models_with_layers.product((1, 33), (33, 10), constant=True)
    models_with_layers.product((5, 16), (16, 7), constant=True)
    models_with_layers.product((2, 3, 6, 5), (2, 3, 5, 11), constant=False)
    models_with_layers.pool("MaxPool", (8, 9), kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    models_with_layers.pool("MaxPool", (5, 23), kernel_shape=[2, 3], strides=[1, 1], pads=[1, 1, 0, 1])
    models_with_layers.pool("AveragePool", (8, 9), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    return models_with_layers


@pytest.mark.parametrize("target", [FPU, ANY], ids=["fpu", "any"])
def test_sums_equal_sequential_sums(models: Models, target: Target, tmp_path: Path) -> None:
    library = models.library(target)
    outputs = HostLibrary(library, tmp_path, ["-O2"])(*models.inputs)
    for (name, expected), output in zip(models.expected.items(), outputs, strict=True):
        assert output.tobytes() == expected.tobytes(), name
    kernels = {call.kernel for call in library.calls if "conv2d" in call.kind}
    assert len([kernel for kernel in kernels if kernel.startswith("tile of ")]) > 3
    shape = SHAPES[1]
    assert shape.outputs * 80 * shape.channels * 9 in {call.macs for call in library.calls}


@pytest.mark.parametrize("target", [FPU, ANY], ids=["fpu", "any"])
def test_nhwc_sums_equal_sequential_sums(target: Target, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    builder = Builder()
    shape = Shape(channels=6, outputs=10, image=(7, 9), filter=(3, 2), strides=(2, 1))
    x = random_floats(generator, 1, *shape.image, shape.channels)
    kernel = random_floats(generator, shape.outputs, *shape.filter, shape.channels)
    bias = random_floats(generator, shape.outputs)
    builder.tensor("x", x.shape, "float32")
    builder.tensor("w", kernel.shape, "float32", data=kernel)
    builder.tensor("b", bias.shape, "float32", data=bias)
    builder.tensor("y", (1, 3, 8, 10), "float32")
    builder.operator("CONV_2D", ["x", "w", "b"], ["y"], stride_h=2, stride_w=1, padding=1)
    model = compiler.from_tflite(builder.finish(["x"], ["y"]), "inner")
    (output,) = HostLibrary(build_library(model, "inner", target), tmp_path, ["-O2"])(x)
    total = np.zeros((1, 3, 8, 10), np.float32)
    for row, column, channel in itertools.product(range(3), range(2), range(6)):
        total += x[:, row : row + 5 : 2, column : column + 8, channel, None] * kernel[:, row, column, channel]
    assert output.tobytes() == (total + bias).tobytes()


def test_sum_needs_no_additional_memory(models: Models) -> None:
    """The arena holds only the input, its padded copy for the convolution, and the result."""
    only = Models()
    only.convolution(Shape(channels=3, outputs=32, image=(16, 16), pads=(1, 1, 1, 1), activation="Relu"))
    padded, result = 3 * 18 * 18 * 4, 32 * 16 * 16 * 4
    assert only.library(FPU).arena_bytes <= 3 * 16 * 16 * 4 + padded + result + 16


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("image", "size", "strides"),
    [((16, 16), (2, 2), (2, 2)), ((10, 14), (2, 2), (2, 2)), ((12, 23), (2, 3), (2, 2)), ((9, 9), (3, 3), (1, 1))],
)
def test_pooled_image_overlaps_its_input(
    operator: str, image: tuple[int, int], size: tuple[int, int], strides: tuple[int, int], tmp_path: Path
) -> None:
    """Except the distance between a tile of results and its inputs."""
    only = Models()
    only.pool(operator, image, kernel_shape=size, strides=strides, pads=[0, 0, 0, 0])
    library = only.library(FPU)
    (output,) = HostLibrary(library, tmp_path, ["-O2"])(*only.inputs)
    (expected,) = only.expected.values()
    assert output.tobytes() == expected.tobytes()
    assert library.arena_bytes < only.inputs[0].nbytes + expected.nbytes / 2
