# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's layers equal the reference kernels, or are refused for a listed reason."""

from pathlib import Path

import numpy as np
import pytest
import tflite_suite
from host_library import HostLibrary
from test_onnx_suite import FOREIGN
from tflite_draw import Draw, Layer, Spec
from tflite_layers import LAYERS

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.compiler.target import ANY, Target

BATCHES = 4
DSP = Target(extensions=("dsp",))
_WITH_DSP = tuple(
    f"{row}/int8" for row in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "AVERAGE_POOL_2D")
)


def failures_of(names: list[str], number: int, directory: Path, target: Target = ANY) -> list[str]:
    """Differences between the outcomes of layers and the lists."""
    known = tflite_suite.lists()
    reasons = {layer: reason for reason, layers in known["refused"].items() for layer in layers}
    failures = []
    for layer, outcome in tflite_suite.judge(tflite_suite.cases(names, number), directory, target).items():
        reason = reasons.get(layer)
        if outcome.verdict == "wrong":
            failures.append(f"{layer}, number {number}, is wrong: {outcome.text}")
        elif outcome.verdict == "right" and (reason or layer in known["beyond"]):
            failures.append(f"{layer} is right: take it off the lists")
        elif outcome.verdict == "refused" and (not reason or reason not in outcome.text):
            failures.append(f"{layer}, number {number}, is refused for another reason than is listed: {outcome.text}")
        elif any(word in outcome.text for word in FOREIGN):
            failures.append(f"{layer}, number {number}: somebody else's words: {outcome.text}")
    return failures


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_layers_equal_the_kernels_or_are_refused(batch: int, tmp_path: Path) -> None:
    names = tflite_suite.layers()[batch::BATCHES]
    known = tflite_suite.lists()
    assert not failures_of([layer for layer in names if layer not in known["beyond"]], 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_dsp_layers_equal_the_kernels(number: int, tmp_path: Path) -> None:
    assert not failures_of(list(_WITH_DSP), number, tmp_path, DSP)


@pytest.mark.slow
@pytest.mark.parametrize("number", [13, 15, 21])
def test_8_bit_state_saturates_like_the_kernel(number: int, tmp_path: Path) -> None:
    """At the largest number the kernel adds the zero point after it clamps."""
    assert not failures_of(["SVDF/int8"], number, tmp_path)


def verdicts_on_all_numbers(operator: str, tensors: list[tuple[Spec, Spec]], directory: Path) -> set[str]:
    """Verdicts on an operator for all numbers of its type, between these tensors."""
    limits = np.iinfo(tensors[0][0].dtype)
    numbers = np.arange(limits.min, limits.max + 1).astype(limits.dtype)
    batch = []
    for count, (data, output) in enumerate(tensors):
        content = Layer([data], [output]).content(operator)
        batch.append(tflite_suite.Case(f"{operator} {count}", f"m{count}", content, [([numbers], [])]))
    tflite_suite.compute_references(batch)
    return {outcome.verdict for outcome in tflite_suite.judge(batch, directory).values()}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["ABS", "ELU", "RSQRT"])
def test_all_256_numbers_equal_the_kernels(operator: str, tmp_path: Path) -> None:
    zero = -128 if operator == "RSQRT" else -7  # Negative numbers have no root.
    factors = ((0.02, 0.4), (0.02, 1.0), (0.11, 0.9), (0.5, 0.4), (0.1, 3.0))
    tensors = [
        (Spec((256,), "int8", scale, zero), Spec((256,), "int8", scale * factor, 5)) for scale, factor in factors
    ]
    assert verdicts_on_all_numbers(operator, tensors, tmp_path) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "scale", "zero"), [("LOGISTIC", 1 / 256, -128), ("TANH", 1 / 128, 0)])
def test_saturating_operator_equals_the_kernels(operator: str, scale: float, zero: int, tmp_path: Path) -> None:
    # For steps from 8 on, the kernels' numbers overflow.
    tensors = [
        (Spec((256,), "int8", coarse, -7), Spec((256,), "int8", scale, zero)) for coarse in (0.02, 0.9, 7.9, 8, 20)
    ]
    assert verdicts_on_all_numbers(operator, tensors, tmp_path) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["LOGISTIC", "TANH"])
def test_all_65536_numbers_equal_the_kernels(operator: str, tmp_path: Path) -> None:
    result = Spec((1 << 16,), "int16", 1 / 32768, 0)
    scales = (2e-5, 1 / 4096, 2.46e-4, 3.89e-4, 0.003, 1 / 1024)
    tensors = [(Spec((1 << 16,), "int16", scale, 0), result) for scale in scales]
    assert verdicts_on_all_numbers(operator, tensors, tmp_path) == {"right"}


_STORED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "PRELU", "PADV2", "SVDF")


@pytest.mark.slow
def test_half_float_weights_equal_widened_ones(tmp_path: Path) -> None:
    batch, halves = [], []
    for count, row in enumerate((*_STORED, "UNIDIRECTIONAL_SEQUENCE_LSTM")):
        draw = Draw(f"{row}/float32/0", "float32")
        layer = LAYERS[row][0](draw).in_halves()
        inputs = [draw.values(spec.shape, spec) for spec in layer.inputs if spec is not None and spec.is_input]
        batch.append(tflite_suite.Case(row, f"m{count}", layer.content(row), [(inputs, [])]))
        halves.append(layer.content(row, halves=True))
    tflite_suite.compute_references(batch)
    for case, content in zip(batch, halves, strict=True):
        case.content = content
    assert {outcome.verdict for outcome in tflite_suite.judge(batch, tmp_path).values()} == {"right"}


@pytest.mark.slow
def test_int16_values_are_concatenated_without_rescaling(tmp_path: Path) -> None:
    parts = [Spec((2, 5), "int16", 0.001, 0), Spec((2, 3), "int16", 0.0025, 0)]
    content = Layer(parts, [Spec((2, 8), "int16", 0.003, 0)], {"axis": 1}).content("CONCATENATION")
    numbers = [np.arange(-2000, 2000, 400, dtype=np.int16).reshape(2, 5), np.full((2, 3), 999, np.int16)]
    batch = [tflite_suite.Case("joined", "m", content, [(numbers, [])])]
    tflite_suite.compute_references(batch)
    assert {outcome.verdict for outcome in tflite_suite.judge(batch, tmp_path).values()} == {"right"}


@pytest.mark.slow
def test_unread_part_of_a_split_is_not_computed(tmp_path: Path) -> None:
    builder = Builder()
    builder.tensor("x", (2, 6), "float32")
    builder.tensor("axis", (), "int32", 1)
    for name in ("a", "b", "c", "y"):
        builder.tensor(name, (2, 2), "float32")
    builder.operator("SPLIT", ["axis", "x"], ["a", "b", "c"], num_splits=3)
    builder.operator("ADD", ["a", "c"], ["y"])
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    run = HostLibrary(compile_model(from_tflite(builder.finish(["x"], ["y"]), "m")), tmp_path)
    np.testing.assert_array_equal(run(data)[0], data[:, :2] + data[:, 4:])


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(1, 25))
@pytest.mark.parametrize("target", [ANY, DSP], ids=["plain", "dsp"])
def test_layers_equal_the_kernels_in_many_shapes(number: int, target: Target, tmp_path: Path) -> None:
    assert not failures_of(tflite_suite.layers(), number, tmp_path, target)
