# SPDX-License-Identifier: Apache-2.0
"""No input makes a model read or write what is not its own, or do what C leaves undefined."""

import random
import time
from pathlib import Path

import hostile
import pytest

_MOST = 24  # Models in one program.
_LAYERS = (
    "GATHER/int8",
    "GATHER_ND/float32",
    "EMBEDDING_LOOKUP/float32",
    "FLOOR_DIV/int32",
    "FLOOR_MOD/int32",
    "DIV/int8",
    "CAST to int8/float32",
    "QUANTIZE to int8/float32",
    "SOFTMAX/int16",
    "CONV_2D/int16",
    "UNIDIRECTIONAL_SEQUENCE_LSTM/int8",
    "SVDF/int8",
)
_CASES = (
    "scatternd_min_with_element_indices",
    "scatter_elements_with_negative_indices",
    "gather_elements_1",
    "gathernd_example_int32",
    "div_int32_trunc",
    "div_uint8",
    "mod_mixed_sign_int64",
    "gridsample",
    "roialign_aligned_false",
)


@pytest.mark.slow
def test_models_with_indices_and_divisions_stand_hostile_inputs(tmp_path: Path) -> None:
    chosen = [*(f"layer {each}" for each in _LAYERS), *(f"case test_{each}" for each in _CASES)]
    assert set(chosen) <= set(hostile.sources())
    # Every second one each day.
    assert not hostile.found(chosen[::2], 0, tmp_path)


@pytest.mark.nightly
def test_so_does_every_model_for_as_long_as_the_night_has(tmp_path: Path) -> None:
    end = time.monotonic() + hostile.seconds()
    faults: list[str] = []
    attack = 0
    while time.monotonic() < end and not faults:
        attack += 1
        # Each round takes all models, in another order and so in other company.
        order = hostile.sources()
        random.Random(attack).shuffle(order)
        for first in range(0, len(order), _MOST):
            if time.monotonic() > end or faults:
                break
            folder = tmp_path / f"{attack}-{first}"
            folder.mkdir()
            faults = hostile.found(order[first : first + _MOST], attack, folder)
    assert attack and not faults, "\n".join(faults)


@pytest.mark.nightly
@pytest.mark.parametrize("portion", range(15))
def test_three_hundred_models_stand_a_thousand_inputs(portion: int, tmp_path: Path) -> None:
    chosen = random.Random(34).sample(hostile.sources(), 300)[portion::15]
    faults = hostile.found(chosen, portion, tmp_path, 1000)
    assert not faults, "\n".join(faults)
