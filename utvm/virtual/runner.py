# SPDX-License-Identifier: Apache-2.0
"""How cores behind JTAG run: until an event, a fault, a sleep, or somebody who wants them to stand still.

Time is the number of instructions plus what was slept through. Nothing in it depends on when a debugger looks or
on how fast the host is, so two runs agree to the instruction.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from utvm.virtual.counted import NEVER, CountedCore, Pause

_FAR = 1 << 20  # instructions: an event further off than that is worth a doze of this computer's


class InterruptSource(Protocol):
    """What may interrupt a core."""

    def pending(self) -> int:
        """Return the bits that it drives: an architecture says which."""

    def next_event(self) -> int | None:
        """Return the instant at which it has something new to say by itself, or None."""


class CoreRunner(ABC):
    """A core that runs and halts. Whoever calls holds the machine's lock.

    Attributes:
        core: its instruction set.
        halted: a debugger has it.
        sources: what may interrupt it.
        wanted: as :class:`utvm.virtual.stage.Performer` has it.
    """

    core: CountedCore

    def __init__(self) -> None:
        self.wanted = False
        self.halted = False
        self.sources: list[InterruptSource] = []
        self._sleeping = False
        self._slept = 0
        self._far_off = False

    def now(self) -> int:
        """Return the instructions since the model was made, and what was slept through."""
        return self.core.state.count + self._slept

    @property
    def dozing(self) -> bool:
        """Whether it sleeps and nothing it knows of wakes it soon."""
        return self._sleeping and self._far_off and not self.halted

    def interrupt(self) -> None:
        """Have the run loop look again before the next instruction."""
        self.core.state.stop = 1

    def timers_changed(self) -> None:
        """As :class:`utvm.virtual.wiring.Clock` has it."""
        self.interrupt()

    def close(self) -> None:  # noqa: B027
        """Free nothing: nothing is held."""

    def run(self, at_least: int) -> bool:
        """Execute until somebody wants the core to stand still, or it halts."""
        state = self.core.state
        goal = state.count + at_least
        turns = 0
        while not self.halted:
            state.stop = 0
            wanted = self.wanted
            turns += 1
            # One that faults over and over comes no further.
            if wanted and (state.count >= goal or turns > at_least):
                return True
            if self._sleeping and not self._sleep():
                return self.wanted
            if self._sleeping or self.take_interrupt():
                continue
            event = self._next_event()
            deadline = NEVER if event is None else event - self._slept
            self.after(self.core.run(min(deadline, goal) if wanted else deadline))
        return False

    @abstractmethod
    def reset(self) -> None:
        """Take the state after a reset."""

    @abstractmethod
    def after(self, reason: Pause) -> bool:
        """Do what the instruction at PC needs; return whether that was an exception."""

    @abstractmethod
    def due(self) -> int:
        """Return what is pending and ends a sleep."""

    @abstractmethod
    def take_interrupt(self) -> bool:
        """Take what is pending, if the core lets it in; return whether it did."""

    def pending(self) -> int:
        """Return what all sources drive, and have the core stop where it may let more in."""
        found = 0
        for source in self.sources:
            found |= source.pending()
        self.core.state.masks_matter = bool(found)
        return found

    def sleep(self, size: int) -> None:
        """Go to sleep by the instruction at PC, which has so many bytes."""
        self.pass_instruction(size)
        self._sleeping = True

    def pass_instruction(self, size: int) -> None:
        """Count the instruction at PC and go on behind it."""
        self.core.pc += size
        self.core.state.count += 1

    def _next_event(self) -> int | None:
        events = (source.next_event() for source in self.sources)
        return min((event for event in events if event is not None), default=None)

    def _sleep(self) -> bool:
        """Skip to the next event that wakes it; False where that is far off, or nothing it knows of does."""
        rested, self._far_off = self._far_off, False
        while not self.due():
            event = self._next_event()
            if event is None or (event - self.now() > _FAR and not rested):
                self._far_off = event is not None
                return False
            self._slept += max(0, event - self.now())
            rested = False
            if self.wanted:
                return False
        self._sleeping = False
        return True
