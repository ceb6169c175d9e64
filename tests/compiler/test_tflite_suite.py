# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's layers: the bits of the reference kernels, or refused by name; none wrong."""

from pathlib import Path

import pytest
import tflite_suite
from test_onnx_suite import FOREIGN

from utvm.compiler.target import ANY, Target

BATCHES = 4
DSP = Target(extensions=("dsp",))
_WITH_DSP = tuple(
    f"{row}/int8" for row in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "AVERAGE_POOL_2D")
)


def surprises(names: list[str], number: int, directory: Path, target: Target = ANY) -> list[str]:
    """Return what differs from what is written down of some layers."""
    known = tflite_suite.lists()
    reasons = {layer: reason for reason, layers in known["refused"].items() for layer in layers}
    found = []
    for layer, outcome in tflite_suite.judge(tflite_suite.cases(names, number), directory, target).items():
        reason = reasons.get(layer)
        if outcome.verdict == "wrong":
            found.append(f"{layer}, number {number}, is wrong: {outcome.text}")
        elif outcome.verdict == "right" and (reason or layer in known["beyond"]):
            found.append(f"{layer} is right: take it off the lists")
        elif outcome.verdict == "refused" and (not reason or reason not in outcome.text):
            found.append(f"{layer}, number {number}, is refused for another reason than is listed: {outcome.text}")
        elif any(word in outcome.text for word in FOREIGN):
            found.append(f"{layer}, number {number}: somebody else's words: {outcome.text}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_each_layer_has_the_kernels_bits_or_is_refused_with_the_reason_that_is_written_down(
    batch: int, tmp_path: Path
) -> None:
    names = tflite_suite.layers()[batch::BATCHES]
    known = tflite_suite.lists()
    assert not surprises([each for each in names if each not in known["beyond"]], 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_so_have_those_whose_kernels_are_chosen_for_a_dsp(number: int, tmp_path: Path) -> None:
    assert not surprises(list(_WITH_DSP), number, tmp_path, DSP)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(1, 25))
@pytest.mark.parametrize("target", [ANY, DSP], ids=["plain", "dsp"])
def test_so_has_each_layer_in_other_shapes(number: int, target: Target, tmp_path: Path) -> None:
    assert not surprises(tflite_suite.layers(), number, tmp_path, target)
