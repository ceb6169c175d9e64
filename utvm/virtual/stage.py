# SPDX-License-Identifier: Apache-2.0
"""Where a virtual core runs: a thread of its own, and visitors from outside between two instructions."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from utvm.virtual.bus import BusError

_log = logging.getLogger(__name__)
_FAIR_SHARE = 2000  # instructions that the core executes between two visits, however many queue
_DOZE = 0.005  # seconds: an idle board's clock runs many times faster than a real one's all the same


class Performer(Protocol):
    """A core, as the thread sees it.

    Attributes:
        wanted: somebody else wants the core to stand still: :meth:`run` returns soon.
    """

    wanted: bool

    @property
    def dozing(self) -> bool:
        """Whether it sleeps and nothing it knows of wakes it soon; the next :meth:`run` skips that time."""

    def run(self, at_least: int) -> bool:
        """Execute so many instructions, and more while nobody wants anything; return whether there is more."""

    def interrupt(self) -> None:
        """Have :meth:`run` look at ``wanted`` before the next instruction; called from another thread."""

    def close(self) -> None:
        """Free what it holds."""


class Stage:
    """A core's thread. All methods may be called from any thread.

    Whoever looks in from outside stops the core between two instructions; that changes neither what it does nor
    how many instructions it takes.
    """

    def __init__(self, name: str, core: Performer) -> None:
        self._name = name
        self._core = core
        self._condition = threading.Condition()
        self._gate = threading.Lock()  # of the number of visitors
        self._visitors = 0
        self._served = 0  # visits that have ended
        self._closing = False
        self._broken = False
        self._thread = threading.Thread(target=self._live, name=f"core of {name}", daemon=True)

    def start(self) -> None:
        """Let the core run."""
        self._thread.start()

    def close(self) -> None:
        """Stop the core for good. Safe to call again."""
        if self._closing:
            return
        with self._visit():
            self._closing = True
        if self._thread.ident is not None:
            self._thread.join()
        self._core.close()

    def _may_run(self) -> bool:
        return True

    def _has_work(self) -> bool:
        return True

    def _after_run(self) -> None:
        """Do what the core has asked for and what cannot happen inside an instruction."""

    def _live(self) -> None:
        try:
            with self._condition:
                while not self._closing:
                    busy = self._may_run() and self._core.run(_FAIR_SHARE)
                    self._after_run()
                    served = self._served
                    if self._core.dozing and not self._visitors:
                        # Otherwise a board that waits for its console would keep this computer busy.
                        self._condition.wait(_DOZE)
                        continue
                    while not self._closing and served == self._served and (self._visitors or not busy):
                        self._condition.wait()
        except Exception:
            self._broken = True
            _log.exception("the model of %s has failed", self._name)

    @contextmanager
    def _visit(self) -> Iterator[None]:
        """Hold the core still between two instructions."""
        with self._gate:
            self._visitors += 1
            self._core.wanted = True
            # After "wanted": the core's thread clears what this sets and then looks at "wanted".
            self._core.interrupt()
        with self._condition:
            try:
                if self._broken:
                    raise BusError(0)
                yield
            finally:
                with self._gate:
                    self._visitors -= 1
                    self._core.wanted = self._visitors > 0
                self._served += 1
                if self._closing or self._has_work():
                    self._condition.notify_all()
