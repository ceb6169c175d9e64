# SPDX-License-Identifier: Apache-2.0
"""What every session can do: run a model of its firmware."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from utvm.compiler import Library
from utvm.compiler.library import INDEX_OUT_OF_RANGE
from utvm.errors import BoardError, ConfigError


@dataclass(frozen=True)
class RunResult:
    """One run of a model on a board.

    Attributes:
        outputs: one array an output, with the model's shapes and element types.
        count: what the run took, in ``unit``; 0 on a board on which nobody counts.
        unit: ``instructions`` on a virtual board, ``cycles`` of the core clock on a physical one, ``ns`` where a
            process is the board.
        stack_used: bytes of stack used since reset, at most.
    """

    outputs: tuple[npt.NDArray[np.generic], ...]
    count: int
    unit: str
    stack_used: int

    @property
    def counted(self) -> dict[str, int]:
        """What the run took, by its unit; nothing where nobody counts: no run takes nothing."""
        return {self.unit: self.count} if self.count else {}


class Session(Protocol):
    """A firmware on a board, ready to run its models.

    Attributes:
        way: how it drives the board, for reports.
    """

    way: str

    @property
    def waiting(self) -> bool:
        """Whether a model can be run without a reset."""

    def run(self, model: str, inputs: Sequence[npt.ArrayLike]) -> RunResult:
        """Run a model once.

        Args:
            model: name of one of the firmware's libraries.
            inputs: one array an input, of exactly the shape and element type that the model declares.
        """

    def forget(self, model: str) -> None:
        """Let a model forget its earlier runs: the next one is like the first after :meth:`reset`."""

    def reset(self) -> None:
        """Reset the board and wait until its program can be asked; raises as :meth:`run`."""


def check_states(libraries: Sequence[Library], model: str) -> None:
    """Check that a model keeps something between runs."""
    present = {library.name: library for library in libraries}
    if model not in present:
        raise ConfigError(f"the firmware has no model {model!r}", f"it has: {', '.join(present)}")
    if not present[model].states:
        raise ConfigError(f"model {model} keeps nothing between runs", "each of its runs is like the first")


def refusal(model: str, status: int) -> BoardError:
    """Return the error for a model that returned a code other than 0."""
    known = {INDEX_OUT_OF_RANGE: "an index in its inputs is out of range: it selects what a tensor does not have"}
    return BoardError(f"model {model} returned error code {status}", known.get(status, ""))
