# SPDX-License-Identifier: Apache-2.0
"""A model's inputs as the bytes that a board reads."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from utvm.compiler import Tensor
from utvm.errors import ConfigError


def as_bytes(inputs: Sequence[npt.ArrayLike], tensors: Sequence[Tensor]) -> list[bytes]:
    """Return the inputs as bytes, little-endian and row-major.

    Raises:
        ConfigError: one has not the shape and element type that its tensor declares, or there are more or fewer.
    """
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
