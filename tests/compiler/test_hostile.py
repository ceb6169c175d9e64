# SPDX-License-Identifier: Apache-2.0
"""No input makes a model access foreign memory or have undefined behaviour."""

import random
import time
from pathlib import Path

import hostile
import pytest

_BATCH = 24  # Number of models in one program.
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
def test_indices_and_divisions_survive_hostile_inputs(tmp_path: Path) -> None:
    models = [*(f"layer {layer}" for layer in _LAYERS), *(f"case test_{case}" for case in _CASES)]
    assert set(models) <= set(hostile.sources())
    # Half of them in the daily tests.
    assert not hostile.find_faults(models[::2], 0, tmp_path)


@pytest.mark.nightly
def test_all_models_survive_hostile_inputs(tmp_path: Path) -> None:
    end = time.monotonic() + hostile.seconds()
    faults: list[str] = []
    attack = 0
    while time.monotonic() < end and not faults:
        attack += 1
        # Each attack takes all models in another order, so in other batches.
        order = hostile.sources()
        random.Random(attack).shuffle(order)
        for first in range(0, len(order), _BATCH):
            if time.monotonic() > end or faults:
                break
            folder = tmp_path / f"{attack}-{first}"
            folder.mkdir()
            faults = hostile.find_faults(order[first : first + _BATCH], attack, folder)
    assert attack and not faults, "\n".join(faults)


@pytest.mark.nightly
@pytest.mark.parametrize("portion", range(15))
def test_three_hundred_models_survive_a_thousand_inputs(portion: int, tmp_path: Path) -> None:
    models = random.Random(34).sample(hostile.sources(), 300)[portion::15]
    faults = hostile.find_faults(models, portion, tmp_path, 1000)
    assert not faults, "\n".join(faults)
