# SPDX-License-Identifier: Apache-2.0
"""Trying a model on many samples, and comparing what two boards make of them, bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler import Tensor
from utvm.compiler.model import Sample
from utvm.errors import ConfigError


@dataclass(frozen=True)
class Mismatch:
    """An output of a sample that is not the same on two boards.

    Attributes:
        sample: number of the sample, from 0.
        output: name of the output.
        index: where in the output the first different element is.
        value, expected: that element on the one board, and on the one that it is validated against.
        differing, elements: how many elements differ, and how many there are.
    """

    sample: int
    output: str
    index: tuple[int, ...]
    value: float
    expected: float
    differing: int
    elements: int


def compare(
    sample: int,
    tensors: Sequence[Tensor],
    outputs: Sequence[npt.NDArray[Any]],
    expected: Sequence[npt.NDArray[Any]],
) -> list[Mismatch]:
    """Compare the outputs of one sample bit for bit: NaN is equal to the same NaN, 0.0 is not equal to -0.0."""
    found = []
    for tensor, ours, theirs in zip(tensors, outputs, expected, strict=True):
        places = np.argwhere(_bits(ours) != _bits(theirs))
        if len(places):
            index = tuple(int(number) for number in places[0])
            values = ours[index].item(), theirs[index].item()
            found.append(Mismatch(sample, tensor.name, index, *values, len(places), ours.size))
    return found


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(array.shape)


def prediction(outputs: Sequence[npt.NDArray[Any]]) -> int | None:
    """Return the index of the largest of a classifier's scores; None where there is not one vector of them."""
    if len(outputs) != 1 or max(outputs[0].shape, default=1) != outputs[0].size or outputs[0].size == 1:
        return None
    return int(outputs[0].argmax())


def as_samples(arrays: Mapping[str, npt.NDArray[Any]], tensors: Sequence[Tensor]) -> list[Sample]:
    """Take arrays of many samples apart.

    Args:
        arrays: one an input, by its name; with one input, the name may be empty. The samples lie along a dimension
            before the input's own, or along the input's first where that is 1. An array of the input's own shape
            is one sample.
    """
    if unknown := [name for name in arrays if name and name not in {tensor.name for tensor in tensors}]:
        raise ConfigError(
            f"the inputs hold an array {unknown[0]!r}, which is no input",
            f"the model's inputs: {', '.join(tensor.name for tensor in tensors)}",
        )
    columns = []
    for tensor in tensors:
        array = arrays.get(tensor.name, arrays.get("") if len(tensors) == 1 else None)
        if array is None:
            raise ConfigError(
                f"the inputs hold no array {tensor.name!r}", "give an .npz with an array for each input"
            )
        own, shape = tensor.shape, array.shape
        stacked = shape[1:] == own or (own[:1] == (1,) and shape[1:] == own[1:])
        if array.dtype.name != tensor.dtype or not (shape == own or (stacked and shape)):
            raise ConfigError(
                f"input {tensor.name} is {tensor.dtype} {list(own)}, many samples with their count in front; "
                f"not {array.dtype.name} {list(shape)}"
            )
        columns.append(array.reshape(-1, *own))
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ConfigError(f"the inputs have {' and '.join(map(str, sorted(lengths)))} samples")
    return [list(sample) for sample in zip(*columns, strict=True)]
