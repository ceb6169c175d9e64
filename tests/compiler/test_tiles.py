# SPDX-License-Identifier: Apache-2.0
"""Float sums in tiles: each result has the bits that numpy gives when it adds up one product after the other."""

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
    """A convolution; extents as ONNX has them."""

    channels: int = 3
    outputs: int = 4
    image: tuple[int, int] = (7, 9)
    filter: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    group: int = 1
    behind: str = ""


# Extents that tiles divide, and such as leave something over on one axis, and on both.
SHAPES = [
    Shape(),
    Shape(outputs=8, image=(8, 10), pads=(1, 1, 1, 1), behind="Relu"),
    Shape(channels=5, outputs=7, image=(11, 13), filter=(5, 5), pads=(2, 2, 2, 2), behind="Relu"),
    Shape(channels=16, outputs=9, image=(6, 5), filter=(1, 1), behind="Sigmoid"),
    Shape(outputs=13, image=(17, 6), filter=(2, 4), strides=(2, 1), dilation=(1, 2), pads=(1, 0, 2, 1)),
    Shape(channels=6, outputs=6, pads=(1, 1, 1, 1), group=6, behind="Add"),
    Shape(channels=6, outputs=9, group=3, strides=(1, 3), behind="Relu"),
    Shape(channels=4, outputs=12, image=(5, 5), group=4, pads=(1, 0, 1, 0)),
    Shape(channels=31, outputs=1, image=(3, 3)),
    Shape(channels=1, outputs=17, image=(1, 23), filter=(1, 7), behind="SiLU"),
    Shape(channels=8, outputs=8, pads=(1, 1, 1, 1), behind="Add"),
]


def random_floats(generator: np.random.Generator, *shape: int) -> Array:
    """Return numbers of very different sizes, of which each sum in another order has other bits."""
    return (generator.standard_normal(shape) * 10.0 ** generator.integers(-3, 4, shape)).astype(np.float32)


def convolved(x: Array, kernel: Array, shape: Shape) -> Array:
    """Convolve as a loop over channels, rows and columns does, which are the outermost, and the innermost."""
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


def multiplied(x: Array, y: Array) -> Array:
    """Multiply matrices as a loop over the inner extent does."""
    total = np.zeros((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]), np.float32)
    for k in range(x.shape[-1]):
        total += x[..., k : k + 1] * y[..., k : k + 1, :]
    return total


class Models:
    """Many layers in one model, each with an input, a result, and what this must be."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(17)
        self.nodes: list[Any] = []
        self.inputs: list[Array] = []
        self.stored: dict[str, Array] = {}
        self.wanted: dict[str, Array] = {}

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
        result = convolved(x, kernel, shape) + bias[:, None, None]
        self._behind(shape.behind, number, x, result)

    def _behind(self, operator: str, number: int, x: Array, result: Array) -> None:
        before, name = f"c{number}", f"y{number}"
        if operator == "Relu":
            self.nodes.append(helper.make_node("Relu", [before], [name]))
            result = np.maximum(result, np.float32(0))
        elif operator == "Add":
            self.nodes.append(helper.make_node("Add", [before, f"x{number}"], [name]))
            result = result + x
        elif operator == "SiLU":
            # Two read the sum: it is stored nowhere, nor computed twice.
            self.nodes.append(helper.make_node("HardSigmoid", [before], [f"h{number}"], alpha=0.25, beta=0.5))
            self.nodes.append(helper.make_node("Mul", [before, f"h{number}"], [name]))
            gate = result * np.float32(0.25) + np.float32(0.5)
            result = result * np.clip(gate, np.float32(0), np.float32(1))
        elif operator == "Sigmoid":
            # Not by the same exponential here and there: both results of the sum leave.
            self.nodes.append(helper.make_node("Neg", [before], [name]))
            self.wanted[before] = result
            result = -result
        else:
            name = before
        self.wanted[name] = result

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
        self.wanted[f"y{number}"] = multiplied(x, y)

    def pool(self, operator: str, image: tuple[int, int], **options: Any) -> None:
        number = len(self.inputs)
        x = random_floats(self.generator, 1, 5, *image)
        self.inputs.append(x)
        self.nodes.append(helper.make_node(operator, [f"x{number}"], [f"y{number}"], **options))
        self.wanted[f"y{number}"] = pooled(operator, x, **options)

    def library(self, target: Target) -> Library:
        def told(name: str, array: Array) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)

        graph = helper.make_graph(
            self.nodes,
            "tiles",
            [told(f"x{number}", each) for number, each in enumerate(self.inputs)],
            [told(name, each) for name, each in self.wanted.items()],
            [numpy_helper.from_array(each, name) for name, each in self.stored.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return build_library(compiler.from_onnx(model.SerializeToString(), "tiles"), "tiles", target)


def pooled(operator: str, x: Array, kernel_shape: Any, strides: Any, pads: Any) -> Array:
    """Pool; means leave padding out."""
    top, left, bottom, right = pads
    fill = -np.inf if operator == "MaxPool" else 0.0
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded, ones = np.pad(x, around, constant_values=fill), np.pad(np.ones_like(x), around)
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
    found = Models()
    for shape in SHAPES:
        found.convolution(shape)
    found.product((1, 33), (33, 10), constant=True)
    found.product((5, 16), (16, 7), constant=True)
    found.product((2, 3, 6, 5), (2, 3, 5, 11), constant=False)
    found.pool("MaxPool", (8, 9), kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    found.pool("MaxPool", (5, 23), kernel_shape=[2, 3], strides=[1, 1], pads=[1, 1, 0, 1])
    found.pool("AveragePool", (8, 9), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    return found


@pytest.mark.parametrize("target", [FPU, ANY], ids=["fpu", "any"])
def test_sums_have_the_bits_of_one_addition_after_another(models: Models, target: Target, tmp_path: Path) -> None:
    library = models.library(target)
    answers = HostLibrary(library, tmp_path, ["-O2"])(*models.inputs)
    for (name, wanted), answer in zip(models.wanted.items(), answers, strict=True):
        assert answer.tobytes() == wanted.tobytes(), name
    told = {call.kernel for call in library.calls if "conv2d" in call.kind}
    assert len([each for each in told if each.startswith("tile of ")]) > 3
    shape = SHAPES[1]
    assert shape.outputs * 80 * shape.channels * 9 in {call.macs for call in library.calls}


@pytest.mark.parametrize("target", [FPU, ANY], ids=["fpu", "any"])
def test_so_they_have_where_channels_are_innermost(target: Target, tmp_path: Path) -> None:
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
    (answer,) = HostLibrary(build_library(model, "inner", target), tmp_path, ["-O2"])(x)
    total = np.zeros((1, 3, 8, 10), np.float32)
    for row, column, channel in itertools.product(range(3), range(2), range(6)):
        total += x[:, row : row + 5 : 2, column : column + 8, channel, None] * kernel[:, row, column, channel]
    assert answer.tobytes() == (total + bias).tobytes()


def test_sum_needs_no_memory_beside_the_result(models: Models) -> None:
    """The input, padded for the convolution, and the result: that is all there may be."""
    only = Models()
    only.convolution(Shape(channels=3, outputs=32, image=(16, 16), pads=(1, 1, 1, 1), behind="Relu"))
    padded, result = 3 * 18 * 18 * 4, 32 * 16 * 16 * 4
    assert only.library(FPU).arena_bytes <= 3 * 16 * 16 * 4 + padded + result + 16


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("image", "size", "strides"),
    [((16, 16), (2, 2), (2, 2)), ((10, 14), (2, 2), (2, 2)), ((12, 23), (2, 3), (2, 2)), ((9, 9), (3, 3), (1, 1))],
)
def test_a_pooled_image_lies_over_the_one_it_is_made_of(
    operator: str, image: tuple[int, int], size: tuple[int, int], strides: tuple[int, int], tmp_path: Path
) -> None:
    """Up to what tiles of results are ahead of what they are made of."""
    only = Models()
    only.pool(operator, image, kernel_shape=size, strides=strides, pads=[0, 0, 0, 0])
    library = only.library(FPU)
    (answer,) = HostLibrary(library, tmp_path, ["-O2"])(*only.inputs)
    (wanted,) = only.wanted.values()
    assert answer.tobytes() == wanted.tobytes()
    assert library.arena_bytes < only.inputs[0].nbytes + wanted.nbytes / 2
