# SPDX-License-Identifier: Apache-2.0
"""Virtual time: ticks of the core clock. An instruction is one tick; sleep skips to the next event."""

from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """What a timer needs to know about time."""

    def now(self) -> int:
        """Return the ticks since the model was made. Never goes back."""

    def timers_changed(self) -> None:
        """Note that the next event of a timer has moved."""


@runtime_checkable
class Timer(Protocol):
    """Something that will happen at a known tick."""

    def next_event(self) -> int | None:
        """Return the tick at which :meth:`expire` has something to do, or None."""

    def expire(self) -> None:
        """Do what is due by now."""
