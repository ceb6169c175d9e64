# SPDX-License-Identifier: Apache-2.0
"""How good answers are: confusion, its figures, and the distance to another library's answers."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from utvm.errors import ConfigError
from utvm.session.evaluation import confusion, distance

_Answers = list[list[npt.NDArray[Any]]]


def _scores(*kinds: int, classes: int = 3) -> _Answers:
    return [[np.eye(classes, dtype=np.float32)[kind]] for kind in kinds]


def test_a_row_is_the_class_and_a_column_what_it_was_taken_for() -> None:
    counted = confusion(_scores(0, 0, 1, 1, 0), [0, 0, 0, 1, 2])
    assert counted.counts.tolist() == [[2, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert counted.accuracy == 3 / 5
    assert [counted.recall(kind) for kind in range(3)] == [2 / 3, 1.0, 0.0]
    assert [counted.precision(kind) for kind in range(3)] == [2 / 3, 1 / 2, None]
    assert confusion(_scores(1), [0]).recall(2) is None


@pytest.mark.parametrize(
    ("answers", "labels", "message"),
    [
        ([], [], "labels are for a model with one output"),
        ([*_scores(1), [np.zeros(3), np.zeros(3)]], [1, 1], "labels are for a model with one output"),
        (_scores(1), [3], "label 3 is not a class of the model, which has 3"),
        (_scores(1, 1), [0, -1], "label -1 is not a class"),
    ],
)
def test_what_is_no_classifier_s_is_refused(answers: _Answers, labels: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        confusion(answers, labels)


def test_the_distance_is_over_all_elements_of_all_samples() -> None:
    ours = [[np.array([1.0, 2.0])], [np.array([4.0, 3.0])]]
    theirs = [[np.array([1.0, 4.0])], [np.array([3.0, 7.0])]]
    found = distance(ours, theirs)
    assert found.largest == 4.0
    assert found.rmse == pytest.approx(math.sqrt((0 + 4 + 1 + 16) / 4))
    assert found.snr_db == pytest.approx(10 * math.log10((1 + 16 + 9 + 49) / (4 + 1 + 16)))
    assert found.same_class == 1


def test_equal_answers_have_no_noise_and_silence_no_signal() -> None:
    one, zero = [[np.array([1.0, 2.0])]], [[np.zeros(2)]]
    assert distance(one, one).snr_db == math.inf
    assert distance(zero, zero).snr_db == math.inf
    assert distance(one, zero).snr_db == -math.inf


def test_answers_that_are_no_scores_have_no_class_in_common() -> None:
    pair = [[np.zeros((2, 2))]]
    assert distance(pair, pair).same_class is None
    # Small integers differ by more than they can hold.
    assert distance([[np.array([-128, 0], np.int8)]], [[np.array([127, 0], np.int8)]]).largest == 255.0


def test_samples_of_the_same_class_are_counted() -> None:
    ours = [[np.array(values, np.int8)] for values in ([1, 2], [2, 1], [3, 1])]
    theirs = [[np.array(values, np.int8)] for values in ([0, 9], [0, 9], [9, 0])]
    assert distance(ours, theirs).same_class == 2
    with pytest.raises(ValueError, match="shorter"):
        distance(ours, [[np.zeros(6, np.int8)]])
