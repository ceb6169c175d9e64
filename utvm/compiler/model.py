# SPDX-License-Identifier: Apache-2.0
"""A model before compilation: its bytes and origin."""

from dataclasses import dataclass
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
