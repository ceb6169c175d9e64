# SPDX-License-Identifier: Apache-2.0
"""TFLite_Detection_PostProcess against TensorFlow Lite Micro's kernel, bit for bit."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary
from tflite_detection import OPERATOR, defined_results, draw_detection
from tflite_draw import Draw
from tflite_micro.python.tflite_micro import runtime

from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError

Arrays = list[npt.NDArray[np.float32]]


def random_inputs(draw: Draw, shapes: list[tuple[int, ...]]) -> Arrays:
    boxes = draw.random.normal(0, 2, shapes[0]).astype(np.float32)
    # Few different scores, so that many are equal.
    return [boxes, (draw.random.integers(0, 20, shapes[1]) / 20).astype(np.float32)]


def run_kernel(content: bytes, inputs: Arrays) -> Arrays:
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 20)
    for index, array in enumerate(inputs):
        interpreter.set_input(array, index)
    interpreter.invoke()
    return [np.array(interpreter.get_output(index)) for index in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(3, 60))])
@pytest.mark.parametrize("regular", [False, True], ids=["fast", "regular"])
def test_detections_equal_the_kernel(number: int, regular: bool, tmp_path: Path) -> None:
    draw = Draw(f"{OPERATOR}/{regular}/{number}", "float32")
    layer = draw_detection(draw, regular=regular)
    content = layer.content(OPERATOR)
    run = HostLibrary(compile_model(from_tflite(content, "m")), tmp_path)
    for _ in range(3):
        inputs = random_inputs(draw, [spec.shape for spec in layer.inputs[:2] if spec])
        expected = defined_results(layer, run_kernel(content, inputs))
        for expected_array, result in zip(expected, defined_results(layer, run(*inputs)), strict=True):
            np.testing.assert_array_equal(result, expected_array)


@pytest.mark.slow
def test_quantised_operands_equal_real_ones(tmp_path: Path) -> None:
    """TensorFlow Lite supports quantised operands; TensorFlow Lite Micro supports floats only."""
    draws = [Draw(f"{OPERATOR}/uint8", "float32") for _ in range(2)]
    real, quantised = (
        draw_detection(d, regular=True, dtype=t) for d, t in zip(draws, ("float32", "uint8"), strict=True)
    )
    random = draws[0].random
    inputs = [random.integers(0, 256, spec.shape).astype(np.uint8) for spec in quantised.inputs[:2] if spec]
    reals = [((array.astype(np.float32) - zero) / 64) for array, zero in zip(inputs, (100, 3), strict=True)]
    run = HostLibrary(compile_model(from_tflite(quantised.content(OPERATOR), "m")), tmp_path)
    expected = defined_results(real, run_kernel(real.content(OPERATOR), reals))
    assert expected[3] > 2
    for expected_array, result in zip(expected, defined_results(real, run(*inputs)), strict=True):
        np.testing.assert_array_equal(result, expected_array)


def test_results_without_a_shape_are_refused() -> None:
    layer = draw_detection(Draw(OPERATOR, "float32"), regular=True)
    layer = type(layer)(layer.inputs, [type(spec)((1,), "float32") for spec in layer.outputs], layer.options)
    model = from_tflite(layer.content(OPERATOR), "m")
    with pytest.raises(CompileError, match=rf"{OPERATOR} \(at out0\): its shapes and options do not fit") as caught:
        compile_model(model)
    assert "room for max_detections boxes" in caught.value.hint
