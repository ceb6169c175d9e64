# SPDX-License-Identifier: Apache-2.0
"""What the campaign knows of every place where its runs are."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_GONE = 90.0  # Seconds that what is left in there may take to go, on whatever busy computer.


@dataclass
class Place:
    """Where runs are: on this computer, by default.

    Attributes:
        words: what chooses the place.
        environment: variables that a run has, beside those that every run has.
        patience: seconds that a run may take from the strike to its end, on whatever busy computer.
    """

    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 150.0

    def inside(self) -> Sequence[int]:
        """Return the numbers of a run's processes that are not below the command."""
        return ()

    def left(self) -> Sequence[str]:
        """Return what a run has left there that must not be there any more."""
        return ()

    def mend(self) -> None:
        """Wait until it is again what it was before something was struck."""

    def do(self, deed: str) -> bool:
        """Do something in there; return whether there was still something to do it to."""
        raise NotImplementedError


def at_last(left: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return what is left when it has had time to go."""
    deadline = time.monotonic() + _GONE
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def environment_of(pid: object) -> bytes:
    """Return the variables of a process, as the kernel has them; none of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
