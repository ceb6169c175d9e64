# SPDX-License-Identifier: Apache-2.0
"""The tasks of MLPerf Tiny: what their models are given, and how an answer is judged."""

import math
from dataclasses import dataclass

from utvm.compiler import Library
from utvm.compiler.literals import C_TYPES
from utvm.errors import ConfigError


@dataclass(frozen=True)
class Task:
    """One of the benchmark's tasks.

    Attributes:
        says: what it is.
        pictures: whether its files are bytes of colours, which an int8 model takes 128 lower.
    """

    says: str
    pictures: bool


TASKS = {
    "ic01": Task("image classification", True),
    "vww01": Task("visual wake words", True),
    "kws01": Task("keyword spotting", False),
}
"""By the name that a board says in answer to ``profile``. What is missing, ad01, judges by distances."""


def task_of(library: Library) -> dict[str, object]:
    """Return what the template of a task's C is filled in with; a library is called as its task.

    Raises:
        ConfigError: there is no such task, or the model has not one input and one output of numbers.
    """
    task = TASKS.get(library.name)
    if task is None:
        raise ConfigError(f"there is no task {library.name!r}", f"tasks: {', '.join(TASKS)}")
    if len(library.inputs) != 1 or len(library.outputs) != 1:
        found = f"{len(library.inputs)} inputs and {len(library.outputs)} outputs"
        raise ConfigError(f"{task.says} takes a model with one input and one output, not {found}")
    output = library.outputs[0]
    return {
        "library": library,
        "flip": task.pictures and library.inputs[0].dtype == "int8",
        "count": math.prod(output.shape),
        "c_type": C_TYPES[output.dtype],
        "scaling": output.scaling if output.dtype != "float32" else None,
    }
