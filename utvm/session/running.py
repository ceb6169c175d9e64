# SPDX-License-Identifier: Apache-2.0
"""The interface of sessions, which run the models of a firmware."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from utvm import compiler, errors
from utvm.compiler.library import INDEX_OUT_OF_RANGE


@dataclass(frozen=True)
class RunResult:
    """Result of one run.

    Attributes:
        outputs: an array per output, with the model's shapes and element types.
        count: cost in ``unit``; 0 on a board without a counter.
        unit: ``instructions`` on a virtual board, ``cycles`` of the core clock on a physical one, ``ns`` on a host
            process.
        stack_used: maximum stack use since reset, in bytes.
    """

    outputs: tuple[npt.NDArray[np.generic], ...]
    count: int
    unit: str
    stack_used: int

    @property
    def count_by_unit(self) -> dict[str, int]:
        """The count by its unit; empty without a counter."""
        return {self.unit: self.count} if self.count else {}


class Session(Protocol):
    """A firmware on a board, ready to run its models. ``executor`` names the method, for reports."""

    executor: str

    @property
    def waiting(self) -> bool:
        """True if a model can be run without a reset."""

    def run(self, model: str, inputs: Sequence[npt.ArrayLike]) -> RunResult:
        """Run a model once, on an array per input of exactly the declared shape and element type."""

    def forget(self, model: str) -> None:
        """Reset a model's state, as after :meth:`reset`."""

    def reset(self) -> None:
        """Reset the board and wait until it accepts requests; raises as :meth:`run`."""


def check_has_state(libraries: Sequence[compiler.Library], model: str) -> None:
    """Raise ConfigError if the model does not exist or keeps no state between runs."""
    present = {library.name: library for library in libraries}
    if model not in present:
        raise errors.ConfigError(f"the firmware has no model {model!r}", f"it has: {', '.join(present)}")
    if not present[model].states:
        raise errors.ConfigError(f"model {model} has no state between runs", "each of its runs is like the first")


def model_error(model: str, status: int) -> errors.BoardError:
    """Return the error for a model's nonzero return code."""
    known = {INDEX_OUT_OF_RANGE: "an index in its inputs is out of range: it is beyond the size of a tensor"}
    return errors.BoardError(f"model {model} returned error code {status}", known.get(status, ""))
