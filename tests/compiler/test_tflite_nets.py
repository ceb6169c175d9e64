# SPDX-License-Identifier: Apache-2.0
"""Random networks of TensorFlow Lite equal the reference kernels, for all cores with kernels."""

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


def failures_of(seeds: Sequence[int], directory: Path, target: Target) -> list[str]:
    """Networks that differ from the kernels, or are refused although the kernels run them."""
    batch = []
    for number in seeds:
        for dtype in _TYPES:
            net = Net(f"net/{dtype}/{number}", dtype)
            content = net.content(3 + number % 10)
            random = np.random.default_rng(number)
            sets = [([numbers(random, net.input_shape, dtype)], []) for _ in range(2)]
            batch.append(tflite_suite.Case(f"network {number} of {dtype}", f"m{len(batch)}", content, sets))
    tflite_suite.compute_references(batch)
    assert sum(case.runs for case in batch) > len(batch) // 2
    outcomes = tflite_suite.judge(batch, directory, target).values()
    return [f"{outcome.case}: {outcome.text}" for outcome in outcomes if outcome.verdict not in ("right", "beyond")]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_networks_equal_the_kernels(target: str, tmp_path: Path) -> None:
    assert not failures_of([9, 17], tmp_path, TARGETS[target])


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(100, 400, 15))
@pytest.mark.parametrize("target", TARGETS)
def test_many_networks_equal_the_kernels(first: int, target: str, tmp_path: Path) -> None:
    assert not failures_of(range(first, first + 15), tmp_path, TARGETS[target])
