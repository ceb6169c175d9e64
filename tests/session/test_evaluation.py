# SPDX-License-Identifier: Apache-2.0
"""Outputs are compared bit for bit, and files of samples are split into samples."""

import numpy as np
import numpy.typing as npt
import pytest

from utvm.compiler import Tensor
from utvm.errors import ConfigError
from utvm.session.evaluation import Mismatch, as_samples, compare, prediction

_SCORES = Tensor("scores", (1, 3), "float32")
_FLAG = Tensor("flag", (), "bool")


def _floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array([values], np.float32)


def test_equal_bits_agree_for_nan_and_negative_zero() -> None:
    scores = _floats(1.5, np.nan, -0.0)
    assert compare(0, [_SCORES, _FLAG], [scores, np.array(True)], [scores.copy(), np.array(True)]) == []


def test_first_different_element_of_each_output_is_named() -> None:
    actual, expected = [_floats(1.0, 0.0, 2.5), np.array(True)], [_floats(1.0, -0.0, 2.75), np.array(False)]
    assert compare(4, [_SCORES, _FLAG], actual, expected) == [
        Mismatch(4, "scores", (0, 1), 0.0, -0.0, differing=2, elements=3),
        Mismatch(4, "flag", (), True, False, differing=1, elements=1),
    ]


def test_outputs_without_a_counterpart_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compare(0, [_SCORES], [_floats(1.0, 2.0, 3.0)], [])


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([np.array([[3, 9, -1]])], 1),
        ([np.array([0.5, 0.25])], 0),
        ([np.zeros((1, 1, 1, 4)), np.zeros(2)], None),
        ([np.zeros((2, 3))], None),
        ([np.array([[7]])], None),
        ([np.array(7)], None),
    ],
)
def test_prediction_is_the_largest_of_one_vector(outputs: list[npt.NDArray[np.generic]], expected: int | None) -> None:
    assert prediction(outputs) == expected


_IMAGE = Tensor("image", (1, 2, 2), "int8")
_STATE = Tensor("state", (3,), "int8")


@pytest.mark.parametrize("shape", [(4, 2, 2), (4, 1, 2, 2)])
def test_samples_lie_along_the_first_dimension(shape: tuple[int, ...]) -> None:
    values = np.arange(16, dtype=np.int8)
    samples = as_samples({"": values.reshape(shape)}, [_IMAGE])
    assert [sample[0].tolist() for sample in samples] == values.reshape(4, 1, 2, 2).tolist()
    assert len(as_samples({"": values[:4].reshape(1, 2, 2)}, [_IMAGE])) == 1


def test_inputs_are_selected_by_name() -> None:
    states, images = np.arange(6, dtype=np.int8).reshape(2, 3), np.zeros((2, 2, 2), np.int8)
    samples = as_samples({"state": states, "image": images}, [_IMAGE, _STATE])
    assert [(image.shape, state.tolist()) for image, state in samples] == [
        ((1, 2, 2), [0, 1, 2]),
        ((1, 2, 2), [3, 4, 5]),
    ]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "hold no array 'image'"),
        ({"": np.zeros((2, 2, 2), np.int8)}, "hold no array 'image'"),
        ({"image": np.zeros((2, 2, 2), np.int8), "state": np.zeros((3, 3), np.int8)}, "have 2 and 3 samples"),
        ({"image": np.zeros((2, 2, 3), np.int8), "state": np.zeros(3, np.int8)}, r"not int8 \[2, 2, 3\]"),
        ({"image": np.zeros((2, 2, 2), np.int16), "state": np.zeros(3, np.int8)}, r"not int16 \[2, 2, 2\]"),
        ({"image": np.array(1, np.int8), "state": np.zeros(3, np.int8)}, r"not int8 \[\]"),
    ],
)
def test_arrays_that_do_not_fit_the_inputs_are_refused(arrays: dict[str, npt.NDArray[np.int8]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_samples(arrays, [_IMAGE, _STATE])


def test_unknown_array_is_refused() -> None:
    arrays = {"image": np.zeros((4, 1, 2, 2), np.float32), "imgae": np.ones((4, 1, 2, 2), np.float32)}
    with pytest.raises(ConfigError, match="an array 'imgae', which is not an input") as caught:
        as_samples(arrays, [_IMAGE])
    assert "image" in caught.value.hint
