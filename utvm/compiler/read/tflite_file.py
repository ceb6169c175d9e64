# SPDX-License-Identifier: Apache-2.0
"""Reading a TensorFlow Lite file, with everything checked before TVM sees it."""

from utvm.compiler.model import Model

IDENTIFIER = b"TFL3"
"""What stands at byte 4 of every file."""


def from_tflite(content: bytes, name: str, origin: str | None = None) -> Model:
    """Take a TensorFlow Lite file.

    Args:
        name: a C identifier.
        origin: what messages call the model.
    """
    from utvm.compiler.read.tflite_graph import read
    from utvm.compiler.read.tflite_validate import check

    origin = origin or f"TFLite model {name}"
    check(read(content, origin), origin)
    return Model(name, origin, "tflite", content)
