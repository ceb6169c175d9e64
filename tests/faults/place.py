# SPDX-License-Identifier: Apache-2.0
"""Locations of the campaign's runs: their common parts."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_GONE = 90.0  # Seconds that leftovers may take to disappear, on a busy computer.


@dataclass
class Place:
    """A location of runs: this computer, by default.

    Attributes:
        words: options that select the location.
        environment: further variables of a run.
        patience: seconds from the fault to the end of the run, on a busy computer.
    """

    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 150.0

    def inside(self) -> Sequence[int]:
        """Return the ids of a run's processes that are not descendants of the command."""
        return ()

    def leftovers(self) -> Sequence[str]:
        """Return things that a run has left there and should not have."""
        return ()

    def mend(self) -> None:
        """Wait until the fault is undone."""

    def do(self, action: str) -> bool:
        """Inject a fault; return whether its target was still there."""
        raise NotImplementedError


def remaining(query: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return the leftovers after they have had time to disappear."""
    deadline = time.monotonic() + _GONE
    while (leftovers := query()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return leftovers


def environment_of(pid: object) -> bytes:
    """Return the variables of a process from the kernel; an empty string if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
