# SPDX-License-Identifier: Apache-2.0
"""More virtual boards for a run: forks of its process, which take suites from the same queue."""

import itertools
import multiprocessing
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

import pytest

from utvm.base.process import signals

Message = tuple[str, Any]
"""Kind and content: see :class:`utvm.hil.run.HilRun`."""

_INDEX = struct.Struct("H")
_MOST = 1024  # Suites in the pipe, which must not be full.


class SuiteQueue:
    """The suites that no board has taken yet, in a pipe that all processes of a run read."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._suites = [list(suite) for _, suite in itertools.groupby(items, key=lambda item: item.path)]
        self._reader, writer = os.pipe()
        os.write(writer, b"".join(map(_INDEX.pack, range(len(self._suites[:_MOST])))))
        os.close(writer)

    def boards(self, most: int) -> int:
        """Return how many boards can share the suites."""
        return max(1, min(most, len(self._suites))) if len(self._suites) <= _MOST else 1

    def _items(self) -> Iterator[pytest.Item]:
        while index := os.read(self._reader, _INDEX.size):
            yield from self._suites[_INDEX.unpack(index)[0]]

    def run(self, session: pytest.Session) -> None:
        """Run suites until there are no more, as pytest's own loop does."""
        items = self._items()
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following

    def clear(self) -> None:
        """Leave nothing for other processes to take."""
        while os.read(self._reader, 4096):
            pass


class Workers:
    """Forks of this process, and what they send."""

    def __init__(self) -> None:
        self._processes: dict[connection.Connection, multiprocessing.process.BaseProcess] = {}

    def start(self, work: Callable[[int, connection.Connection], None], count: int) -> None:
        """Start forks, which call ``work`` with the number of their board, from 2 on, and a pipe to this process.

        Raises OSError if the system allows no further process.
        """
        context, parent = multiprocessing.get_context("fork"), os.getpid()
        for number in range(2, count + 2):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(parent, work, number, theirs))
            process.start()
            theirs.close()
            self._processes[ours] = process

    def receive(self, wait: bool = False) -> Iterator[Message]:
        """Yield messages that have arrived; with ``wait``, until all forks have ended."""
        while self._processes and (ready := connection.wait(list(self._processes), None if wait else 0)):
            for pipe in ready:
                assert isinstance(pipe, connection.Connection)
                try:
                    yield pipe.recv()
                except EOFError:
                    process = self._processes.pop(pipe)
                    process.join()
                    yield "exit", process.exitcode

    def close(self) -> None:
        """End the forks; each releases its board."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(_PATIENCE)
            process.kill()
        self._processes.clear()


_PATIENCE = 20.0  # Seconds; closing a board takes up to 10.


def _run(
    parent: int, work: Callable[[int, connection.Connection], None], number: int, pipe: connection.Connection
) -> None:
    signals.die_with(parent)
    signals.raise_on_signals()
    try:
        work(number, pipe)
    finally:
        signals.ignore_signals()


class Relay:
    """Stands in for the run's display in a fork."""

    def __init__(self, pipe: connection.Connection) -> None:
        self._pipe = pipe

    def __getattr__(self, kind: str) -> Callable[..., None]:
        return lambda *content: self._pipe.send((kind, content))
