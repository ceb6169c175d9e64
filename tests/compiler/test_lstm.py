# SPDX-License-Identifier: Apache-2.0
"""Int8 LSTMs, whose products are summed differently with vectors, with the DSP extension and in plain C."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary
from tflite_draw import Layer, Spec

import utvm
from models.tflite_reference import tflite_micro
from utvm.compiler import Target, compile_model, from_tflite

pytestmark = pytest.mark.slow

_SANITIZERS = ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]


@dataclass(frozen=True)
class _Shape:
    """An LSTM; ``lowest``: of the weights; ``scale``: of the weights; ``clip``: of the cell state, 0 for none."""

    depth: int
    units: int
    scale: float = 0.004
    lowest: int = -127
    clip: float = 0.0
    bias: int = 9000
    time_major: bool = False
    cell: float = 2.0**-11
    equal: bool = False  # All biases are the largest.

    def content(self, random: np.random.Generator) -> bytes:
        widths = [self.depth] * 4 + [self.units] * 4
        weights = [
            Spec((self.units, width), "int8", self.scale, data=random.integers(self.lowest, 128, (self.units, width)))
            for width in widths
        ]
        low = self.bias if self.equal else -self.bias
        biases = [Spec((self.units,), "int32", data=random.integers(low, self.bias + 1, self.units)) for _ in range(4)]
        hidden = Spec((2, self.units), "int8", 1 / 128, 4, variable=True)
        cell = Spec((2, self.units), "int16", self.cell, variable=True)
        order = self.order
        data, result = Spec((*order, self.depth), "int8", 1 / 128, -3), Spec((*order, self.units), "int8", 1 / 128, 4)
        operands = [data, *weights, *[None] * 3, *biases, None, None, hidden, cell, *[None] * 4]
        options = {"fused_activation_function": "TANH", "time_major": self.time_major, "cell_clip": self.clip}
        return Layer(operands, [result], options).content("UNIDIRECTIONAL_SEQUENCE_LSTM")

    @property
    def order(self) -> tuple[int, int]:
        return (3, 2) if self.time_major else (2, 3)

    def runs(self, random: np.random.Generator) -> list[list[npt.NDArray[np.int8]]]:
        shape = (*self.order, self.depth)
        return [[random.integers(-128, 128, shape).astype(np.int8)] for _ in range(2)]


@pytest.mark.parametrize(
    "board",
    [
        "mps3-an547",
        "mps2-an500",
        pytest.param("mps2-an385", marks=pytest.mark.nightly),
        pytest.param("microbit", marks=pytest.mark.nightly),
    ],
)
def test_lstm_widths_equal_the_reference(board: str) -> None:
    random = np.random.default_rng(7)
    for shape in (_Shape(37, 19), _Shape(16, 4, scale=0.1), _Shape(3, 33, clip=4.0)):
        content, runs = shape.content(random), shape.runs(random)
        with utvm.open(board) as opened:
            model = opened.load(from_tflite(content, "lstm"))
            for sample, (expected,) in zip(runs, tflite_micro(content, runs), strict=True):
                np.testing.assert_array_equal(model.run(*sample).outputs[0], expected)


@pytest.mark.parametrize("target", [Target(), Target(extensions=("dsp",))], ids=["plain", "dsp"])
@pytest.mark.parametrize(
    "shape",
    [
        _Shape(9, 13, time_major=True),
        _Shape(8, 8, cell=2.0**-15),
        _Shape(1, 1, cell=1.0),
        pytest.param(_Shape(5, 7, lowest=-128), id="weights of -128"),
        pytest.param(_Shape(6, 3, scale=0.1), id="scales that shift to the left"),
        pytest.param(_Shape(6, 3, scale=0.04), id="scales that do not shift"),
        pytest.param(_Shape(6, 3, scale=0.1, bias=1 << 27), id="sums of 31 bits after the shift"),
        pytest.param(_Shape(1, 1, bias=8_370_000, equal=True), id="sums that two gates cannot share"),
        pytest.param(_Shape(6, 3, bias=1 << 24), id="sums of 25 bits"),
        pytest.param(_Shape(6, 3, bias=1 << 30), id="sums of 31 bits"),
        pytest.param(_Shape(6, 9, cell=2.0**3), id="cell state of large steps"),
    ],
)
def test_lstm_equals_the_reference_under_sanitizers(shape: _Shape, target: Target, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    content, runs = shape.content(random), shape.runs(random)
    library = HostLibrary(compile_model(from_tflite(content, "lstm"), target=target), tmp_path, _SANITIZERS)
    (expected,) = tflite_micro(content, runs[:1])
    np.testing.assert_array_equal(library(*runs[0]), expected)
