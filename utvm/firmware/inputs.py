# SPDX-License-Identifier: Apache-2.0
"""A model's inputs as the bytes that a board reads, and real numbers as the integers that stand for them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from utvm.compiler import Tensor
from utvm.errors import ConfigError


def as_integers(given: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return real numbers as the integers of a quantised tensor: the nearest, or the last of the range.

    Anything but real numbers for a tensor of which it is known what its integers stand for is returned as it is.
    """
    if given.dtype.kind != "f" or tensor.scaling is None or np.dtype(tensor.dtype).kind not in "iu":
        return given
    if not np.isfinite(given).all():
        raise ConfigError(f"input {tensor.name} holds what is no finite number", "it cannot be quantised")
    limits = np.iinfo(tensor.dtype)
    integers = np.rint(np.asarray(given, np.float64) / tensor.scaling.scale) + tensor.scaling.zero_point
    return np.asarray(np.clip(integers, limits.min, limits.max), np.dtype(tensor.dtype))


def as_reals(array: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return what the integers of a quantised tensor stand for, as float32; another array as it is."""
    if tensor.scaling is None or array.dtype.kind not in "iu":
        return array
    integers = np.asarray(array, np.float64) - tensor.scaling.zero_point
    return np.asarray(integers * tensor.scaling.scale, np.float32)


def as_bytes(inputs: Sequence[npt.ArrayLike], tensors: Sequence[Tensor]) -> list[bytes]:
    """Return the inputs as bytes, little-endian and row-major."""
    if len(inputs) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise ConfigError(
            f"the model takes {len(tensors)} inputs, {len(inputs)} were given", f"it takes: {names or 'none'}"
        )
    data = []
    for given, tensor in zip(inputs, tensors, strict=True):
        array = np.asarray(given)
        if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
            raise ConfigError(
                f"input {tensor.name} is {tensor.dtype} {list(tensor.shape)}, "
                f"not {array.dtype.name} {list(array.shape)}"
            )
        # The target type is little-endian; an array of the other byte order is converted.
        data.append(np.ascontiguousarray(array, dtype=np.dtype(tensor.dtype)).tobytes())
    return data
