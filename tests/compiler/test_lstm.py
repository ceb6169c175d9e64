# SPDX-License-Identifier: Apache-2.0
"""Int8 LSTMs, whose products are summed differently with vectors and with the DSP extension."""

import numpy as np
import pytest
from tflite_draw import Layer, Spec

import utvm
from models.tflite_reference import tflite_micro
from utvm.compiler import from_tflite

pytestmark = pytest.mark.slow


def _layer(random: np.random.Generator, depth: int, units: int) -> Layer:
    widths = [depth] * 4 + [units] * 4
    weights = [Spec((units, width), "int8", 0.004, data=random.integers(-127, 128, (units, width))) for width in widths]
    biases = [Spec((units,), "int32", data=random.integers(-9000, 9000, units)) for _ in range(4)]
    data = Spec((2, 3, depth), "int8", 1 / 128, -3)
    hidden = Spec((2, units), "int8", 1 / 128, 4, variable=True)
    cell = Spec((2, units), "int16", 2.0**-11, variable=True)
    result = Spec((2, 3, units), "int8", 1 / 128, 4)
    operands = [data, *weights, *[None] * 3, *biases, None, None, hidden, cell, *[None] * 4]
    return Layer(operands, [result], {"fused_activation_function": "TANH", "time_major": False, "cell_clip": 0.0})


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
    for depth, units in ((37, 19), (16, 4), (3, 33)):
        content = _layer(random, depth, units).content("UNIDIRECTIONAL_SEQUENCE_LSTM")
        runs = [[random.integers(-128, 128, (2, 3, depth)).astype(np.int8)] for _ in range(2)]
        with utvm.open(board) as opened:
            model = opened.load(from_tflite(content, "lstm"))
            for sample, (expected,) in zip(runs, tflite_micro(content, runs), strict=True):
                np.testing.assert_array_equal(model.run(*sample).outputs[0], expected)
