# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite Micro's reference kernels on this computer, the reference for int8 results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tflite_micro.python.tflite_micro import runtime

Arrays = list[npt.NDArray[Any]]


def tflite_micro(content: bytes, samples: Sequence[Sequence[npt.NDArray[Any]]], outputs: int = 1) -> list[Arrays]:
    """Run a TensorFlow Lite model.

    Args:
        content: the file.
        samples: for each run, the inputs in the model's order, with its shapes and element types.
        outputs: number of outputs.

    Returns:
        For each run, the outputs in the model's order.
    """
    # 8 MiB of working memory: enough for models whose tensors fit a microcontroller.
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 23)
    results = []
    for sample in samples:
        for number, array in enumerate(sample):
            interpreter.set_input(array, number)
        interpreter.invoke()
        results.append([np.array(interpreter.get_output(number)) for number in range(outputs)])
    return results
