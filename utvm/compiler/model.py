# SPDX-License-Identifier: Apache-2.0
"""A model before it is compiled: its bytes and where they came from; models by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from utvm.base.storage.cache import content_key


@dataclass(frozen=True)
class Model:
    """A model that may be compiled.

    Attributes:
        origin: what messages call it: the path of its file.
        format: how :attr:`content` is written: an ONNX ``ModelProto`` with all its data inside, a TensorFlow Lite
            file, or a Relax module as TVM's JSON.
    """

    name: str
    origin: str
    format: Literal["onnx", "relax", "tflite"]
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return content_key(self.format, self.content)


Sample = list[npt.NDArray[Any]]  # Inputs of one run: an array for each, in the model's order.


@dataclass(frozen=True)
class Made:
    """A model that was made, and samples for it.

    Attributes:
        samples: returns the first so many samples, the same ones every time.
        read: turns an array of a user's file into the model's input; by default, the file holds that.
    """

    model: Model
    samples: Callable[[int], list[Sample]]
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None


@dataclass(frozen=True)
class NamedModel:
    """A model that has a name.

    Attributes:
        make: makes it from a seed for what is random and, where it takes one, a file of weights.
        random: whether its weights are random where no file is given.
    """

    make: Callable[[int, Path | None], Made]
    random: bool = False
    takes_weights: bool = False
