# SPDX-License-Identifier: Apache-2.0
"""Quality of outputs: the confusion matrix, its figures, and the distance to another library's outputs."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from utvm.errors import ConfigError
from utvm.session.evaluation import confusion, distance

_Outputs = list[list[npt.NDArray[Any]]]


def _scores(*kinds: int, classes: int = 3) -> _Outputs:
    return [[np.eye(classes, dtype=np.float32)[kind]] for kind in kinds]


def test_row_is_the_label_and_column_the_prediction() -> None:
    matrix = confusion(_scores(0, 0, 1, 1, 0), [0, 0, 0, 1, 2])
    assert matrix.counts.tolist() == [[2, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert matrix.accuracy == 3 / 5
    assert [matrix.recall(kind) for kind in range(3)] == [2 / 3, 1.0, 0.0]
    assert [matrix.precision(kind) for kind in range(3)] == [2 / 3, 1 / 2, None]
    assert confusion(_scores(1), [0]).recall(2) is None


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        ([], [], "labels are for a model with one output"),
        ([*_scores(1), [np.zeros(3), np.zeros(3)]], [1, 1], "labels are for a model with one output"),
        (_scores(1), [3], "label 3 is not a class of the model, which has 3"),
        (_scores(1, 1), [0, -1], "label -1 is not a class"),
    ],
)
def test_outputs_of_no_classifier_are_refused(outputs: _Outputs, labels: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        confusion(outputs, labels)


def test_distance_is_over_all_elements_of_all_samples() -> None:
    actual = [[np.array([1.0, 2.0])], [np.array([4.0, 3.0])]]
    reference = [[np.array([1.0, 4.0])], [np.array([3.0, 7.0])]]
    result = distance(actual, reference)
    assert result.largest == 4.0
    assert result.rmse == pytest.approx(math.sqrt((0 + 4 + 1 + 16) / 4))
    assert result.snr_db == pytest.approx(10 * math.log10((1 + 16 + 9 + 49) / (4 + 1 + 16)))
    assert result.same_class == 1


def test_equal_outputs_have_no_noise_and_zeros_no_signal() -> None:
    one, zero = [[np.array([1.0, 2.0])]], [[np.zeros(2)]]
    assert distance(one, one).snr_db == math.inf
    assert distance(zero, zero).snr_db == math.inf
    assert distance(one, zero).snr_db == -math.inf


def test_outputs_without_scores_have_no_class_in_common() -> None:
    pair = [[np.zeros((2, 2))]]
    assert distance(pair, pair).same_class is None
    # The difference of small integers can be larger than their type holds.
    assert distance([[np.array([-128, 0], np.int8)]], [[np.array([127, 0], np.int8)]]).largest == 255.0


def test_samples_of_the_same_class_are_counted() -> None:
    actual = [[np.array(values, np.int8)] for values in ([1, 2], [2, 1], [3, 1])]
    reference = [[np.array(values, np.int8)] for values in ([0, 9], [0, 9], [9, 0])]
    assert distance(actual, reference).same_class == 2
    with pytest.raises(ValueError, match="shorter"):
        distance(actual, [[np.zeros(6, np.int8)]])
