# SPDX-License-Identifier: Apache-2.0
"""A model before it is compiled: its bytes and where they came from."""

from dataclasses import dataclass
from typing import Literal

from utvm.base.storage.cache import content_key


@dataclass(frozen=True)
class Model:
    """A model that may be compiled.

    Attributes:
        name: a C identifier, made from the file's name.
        origin: what messages call it: the path of its file.
        format: how :attr:`content` is written: an ONNX ``ModelProto`` with all its data inside, a TensorFlow Lite
            file, or a Relax module as TVM's JSON.
        content: the model.
    """

    name: str
    origin: str
    format: Literal["onnx", "relax", "tflite"]
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return content_key(self.format, self.content)
