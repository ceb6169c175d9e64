# SPDX-License-Identifier: Apache-2.0
"""A model before compilation: its bytes and origin; named models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from utvm.base.storage.cache import content_key


@dataclass(frozen=True)
class Model:
    """A model to compile.

    Attributes:
        origin: its name in messages: the path of its file.
        format: of :attr:`content`: an ONNX ``ModelProto`` with all data included, a TensorFlow Lite file, or a
            Relax module as TVM's JSON.
    """

    name: str
    origin: str
    format: Literal["onnx", "relax", "tflite"]
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return content_key(self.format, self.content)


Sample = list[npt.NDArray[Any]]  # Inputs of one run, an array for each, in the model's order.


@dataclass(frozen=True)
class Made:
    """A generated model with samples.

    ``samples`` returns the first n samples, always the same. ``read`` converts an array of a user's file to the
    model's input; by default the file holds the input.
    """

    model: Model
    samples: Callable[[int], list[Sample]]
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None


@dataclass(frozen=True)
class NamedModel:
    """A model with a name.

    ``make`` builds it from a seed and, if supported, a file of weights. ``random``: weights are random without a
    file.
    """

    make: Callable[[int, Path | None], Made]
    random: bool = False
    takes_weights: bool = False
