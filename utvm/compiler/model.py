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
    """A model to compile; ``origin`` is its path in messages.

    ``content`` is an ONNX ``ModelProto`` with all data, a TensorFlow Lite file, or a Relax module as TVM's JSON.
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
class SampledModel:
    """A generated model with n reproducible samples; ``read`` converts a user's array to the model's input."""

    model: Model
    samples: Callable[[int], list[Sample]]
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None


@dataclass(frozen=True)
class NamedModel:
    """A named model, made from a seed and an optional weight file; ``random``: without one, weights are random."""

    make: Callable[[int, Path | None], SampledModel]
    random: bool = False
    takes_weights: bool = False
