# SPDX-License-Identifier: Apache-2.0
"""The thread of a virtual core, and access to the core from other threads between two instructions."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from utvm.virtual.bus import BusError

if TYPE_CHECKING:
    from utvm.virtual.cortex_m.cpu import CortexM
    from utvm.virtual.jtag.core import CoreRunner

_log = logging.getLogger(__name__)
_MIN_INSTRUCTIONS = 2000  # between two accesses, however many are waiting
_REST = 0.005  # seconds: the clock of an idle board still runs many times faster than a real one


class CoreThread:
    """A core with its thread. All methods may be called from any thread.

    An access from another thread stops the core between two instructions; results and instruction count do not
    change.
    """

    def __init__(self, name: str, core: "CortexM | CoreRunner") -> None:
        self._name = name
        self._core = core
        self._condition = threading.Condition()
        self._waiting_lock = threading.Lock()
        self._waiting = 0  # accesses that are waiting or in progress
        self._finished = 0  # accesses
        self._closing = False
        self._failed = False
        self._thread = threading.Thread(target=self._run_core, name=f"core of {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the core for good. Safe to call again."""
        if self._closing:
            return
        with self._stopped_core():
            self._closing = True
        if self._thread.ident is not None:
            self._thread.join()
        self._core.close()

    def _may_run(self) -> bool:
        return True

    def _has_work(self) -> bool:
        return True

    def _after_run(self) -> None:
        """Handle requests of the core that cannot be handled inside an instruction."""

    def _run_core(self) -> None:
        try:
            with self._condition:
                while not self._closing:
                    busy = self._may_run() and self._core.run(_MIN_INSTRUCTIONS)
                    self._after_run()
                    finished = self._finished
                    if self._core.idle and not self._waiting:
                        # A board that waits for input must not keep the host busy.
                        self._condition.wait(_REST)
                        continue
                    while not self._closing and finished == self._finished and (self._waiting or not busy):
                        self._condition.wait()
        except Exception:
            self._failed = True
            _log.exception("the model of %s has failed", self._name)

    @contextmanager
    def _stopped_core(self) -> Iterator[None]:
        with self._waiting_lock:
            self._waiting += 1
            self._core.stop_requested = True
            # After "stop_requested": the core's thread clears what this sets, then checks "stop_requested".
            self._core.interrupt()
        with self._condition:
            try:
                if self._failed:
                    raise BusError(0)
                yield
            finally:
                with self._waiting_lock:
                    self._waiting -= 1
                    self._core.stop_requested = self._waiting > 0
                self._finished += 1
                if self._closing or self._has_work():
                    self._condition.notify_all()
