# SPDX-License-Identifier: Apache-2.0
"""The tasks of MLPerf Tiny: what their models are given, and how an answer is judged."""

import math
from dataclasses import dataclass

from utvm.compiler import Library
from utvm.compiler.c_files import C_TYPES
from utvm.errors import ConfigError


@dataclass(frozen=True)
class Task:
    """One of the benchmark's tasks.

    Attributes:
        says: what it is.
        pictures: whether its files are bytes of colours, which an int8 model takes 128 lower.
        distance: whether its files are windows of float32, and a result is how far the model's output is from its
            input, the mean of squares; else it is the output.
    """

    says: str
    pictures: bool = False
    distance: bool = False

    def window_bytes(self, library: Library) -> int:
        """Return how many bytes the model is sent for one run."""
        (tensor,) = library.inputs
        return 4 * math.prod(tensor.shape) if self.distance else tensor.size_bytes


TASKS = {
    "ic01": Task("image classification", pictures=True),
    "vww01": Task("visual wake words", pictures=True),
    "kws01": Task("keyword spotting"),
    "ad01": Task("anomaly detection", distance=True),
}
"""By the name that a board says in answer to ``profile``."""


def task_of(library: Library) -> dict[str, object]:
    """Return what the template of a task's C is filled in with; a library is called as its task."""
    task = TASKS.get(library.name)
    if task is None:
        raise ConfigError(f"there is no task {library.name!r}", f"tasks: {', '.join(TASKS)}")
    if len(library.inputs) != 1 or len(library.outputs) != 1:
        found = f"{len(library.inputs)} inputs and {len(library.outputs)} outputs"
        raise ConfigError(f"{task.says} takes a model with one input and one output, not {found}")
    (tensor,), (output,) = library.inputs, library.outputs
    if task.distance and (tensor.shape != output.shape or {tensor.dtype, output.dtype} - {"int8", "float32"}):
        said = f"{tensor.dtype}{list(tensor.shape)} to {output.dtype}{list(output.shape)}"
        raise ConfigError(f"{task.says} takes a model whose output is as its input, int8 or float32, not {said}")
    return {
        "bytes": task.window_bytes(library),
        "distance": task.distance,
        "flip": task.pictures and tensor.dtype == "int8",
        "count": math.prod(output.shape),
        "input": tensor,
        "output": output,
        "c_types": C_TYPES,
    }
