# SPDX-License-Identifier: Apache-2.0
"""Networks of TensorFlow Lite, drawn at random: the reference kernels' bits, for every core that has kernels."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tflite_suite
from tflite_draw import numbers
from tflite_nets import Net

from utvm.compiler.target import ANY, Target

TARGETS = {
    "plain": ANY,
    "dsp": Target(extensions=("dsp",)),
    "mve": Target(extensions=("dsp", "mve")),
    "neon": Target(extensions=("neon",)),
}
_TYPES = ("int8", "int16", "float32")


def _wrong(drawn: Sequence[int], directory: Path, target: Target) -> list[str]:
    """Return which networks differ from what the kernels answer, or are refused though these run them."""
    batch = []
    for number in drawn:
        for dtype in _TYPES:
            net = Net(f"net/{dtype}/{number}", dtype)
            content = net.content(3 + number % 10)
            random = np.random.default_rng(number)
            sets = [([numbers(random, net.input_shape, dtype)], []) for _ in range(2)]
            batch.append(tflite_suite.Case(f"network {number} of {dtype}", f"m{len(batch)}", content, sets))
    tflite_suite.ask(batch)
    assert sum(case.runs for case in batch) > len(batch) // 2
    outcomes = tflite_suite.judge(batch, directory, target).values()
    return [f"{each.case}: {each.text}" for each in outcomes if each.verdict not in ("right", "beyond")]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_networks_have_the_kernels_bits(target: str, tmp_path: Path) -> None:
    assert not _wrong([9, 17], tmp_path, TARGETS[target])


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(100, 400, 15))
@pytest.mark.parametrize("target", TARGETS)
def test_so_have_others(first: int, target: str, tmp_path: Path) -> None:
    assert not _wrong(range(first, first + 15), tmp_path, TARGETS[target])
