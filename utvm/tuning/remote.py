# SPDX-License-Identifier: Apache-2.0
"""Measuring on all boards of a TVM RPC tracker at once; a board that dies costs a retry of what it measured."""

import collections
import contextlib
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from utvm.boards import Board
from utvm.compiler import Model
from utvm.compiler.package.write import write_package
from utvm.errors import BoardError, ConfigError, TransportError
from utvm.tuning.measure import REPEATS, Candidate, CandidateResult
from utvm.tuning.worker import Answer, Failure, ServedBoard, ServedCandidate, work

_TRIES = 3
_CANDIDATE_SECONDS = 120.0  # Linking and loading counted.
_TRACKER_SECONDS = 10.0
_BOARD_SECONDS = 60.0  # Without any board.
_LOOK = 0.2
_MOST = 32


@dataclass
class _Task:
    """A candidate that is to be measured."""

    number: int
    job: ServedCandidate
    tries: int = 0


class OnTracker:
    """Measures on the boards that a tracker has under a key, all at once.

    Args:
        address: the tracker's host and TCP port.
        key: of the boards.
        board: what they must be.
        model: whose layers are measured.
        limit: seconds that one candidate may take; a process that takes longer is ended.

    Raises:
        TransportError: what is at the address is no tracker, or no board is there.
    """

    def __init__(
        self, address: tuple[str, int], key: str, board: Board, model: Model, limit: float = _CANDIDATE_SECONDS
    ) -> None:
        self._address, self._key, self._board, self._model = address, key, board, model
        self._limit = limit
        self._workers: list[_Worker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="utvm-tune-")
        self.unit = ""

    def __enter__(self) -> "OnTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def served(self) -> int:
        """Return how many boards the tracker knows under the key; raises as :func:`served_at`."""
        return served_at(self._address, self._key)

    def measure(self, asked: Sequence[Candidate]) -> list[CandidateResult]:
        """Run each candidate on one of the boards; as :meth:`utvm.tuning.measure.Measurer.measure`.

        Raises:
            BoardError: no board was there for a minute, or one is not what it should be.
        """
        tasks = collections.deque(_Task(number, self._job(each)) for number, each in enumerate(asked))
        found = _Results(len(tasks))
        count = max(1, min(self.served(), len(tasks), _MOST))
        self._workers += [_Worker(*self._address, self._key) for _ in range(count - len(self._workers))]
        threads = [
            threading.Thread(target=self._drive, args=(worker, tasks, found), daemon=True)
            for worker in self._workers[:count]
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _BOARD_SECONDS
        while not found.done:
            time.sleep(_LOOK)
            if any(worker.busy for worker in self._workers):
                deadline = time.monotonic() + _BOARD_SECONDS
            if time.monotonic() > deadline and not found.done:
                found.fail(f"no board with the key {self._key} is left at the tracker")
        for thread in threads:
            thread.join()
        if found.wrong:
            raise BoardError(found.wrong, "board.serve --tracker HOST:PORT --key KEY serves one")
        return [each or CandidateResult(self.unit, (), b"") for each in found.measured]

    def _job(self, asked: Candidate) -> ServedCandidate:
        library = asked.library
        path = write_package(library, Path(self._folder.name) / f"{library.name}.tar", model=self._model)
        inputs = [np.ascontiguousarray(each).tobytes() for each in asked.inputs]
        return ServedCandidate(path, inputs, [each.size_bytes for each in library.outputs], REPEATS)

    def _drive(self, worker: "_Worker", tasks: "collections.deque[_Task]", found: "_Results") -> None:
        """Have one worker do tasks until there are none left."""
        while not found.done:
            ready = worker.started(_LOOK)
            if not ready:
                continue
            if ready.board != self._board.name:
                found.fail(f"the board with the key {self._key} is a {ready.board}, not a {self._board.name}")
                return
            self.unit = ready.unit
            try:
                task = tasks.popleft()
            except IndexError:  # The last ones are under way elsewhere, and may come back.
                time.sleep(_LOOK)
                continue
            answer = worker.ask(task.job, self._limit)
            if isinstance(answer, Answer):
                found.put(task.number, CandidateResult(ready.unit, answer.counts, answer.outputs))
                continue
            task.tries += 1
            if task.tries == _TRIES:
                found.put(task.number, CandidateResult(ready.unit, (), b"", answer.reason[:200]))
            else:
                tasks.append(task)


class _Results:
    """What threads have found out."""

    def __init__(self, count: int) -> None:
        self.measured: list[CandidateResult | None] = [None] * count
        self.wrong = ""

    @property
    def done(self) -> bool:
        return bool(self.wrong) or all(each is not None for each in self.measured)

    def put(self, number: int, measured: CandidateResult) -> None:
        self.measured[number] = measured

    def fail(self, why: str) -> None:
        self.wrong = why


class _Worker:
    """A process that has a board, or waits for one; a new one begins where the last one ended."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._place = (host, port, key)
        self._ready: ServedBoard | None = None
        self._process: Any = None
        self._pipe: Connection | None = None
        self.busy = False

    def started(self, patience: float) -> ServedBoard | None:
        """Return what the worker has, if it has a board within so many seconds."""
        if self._ready is None:
            if self._process is None or not self._process.is_alive():
                self._start()
            said = self._heard(patience)
            if isinstance(said, Failure):
                self.end()
                time.sleep(patience)
            self._ready = said if isinstance(said, ServedBoard) else None
        return self._ready

    def ask(self, job: ServedCandidate, limit: float) -> Answer | Failure:
        """Have a job done; where that fails, the process is ended: a board that hangs is nobody's to wait for."""
        assert self._pipe
        self.busy = True
        try:
            self._pipe.send(job)
            said = self._heard(limit)
        except OSError:
            said = Failure("the process that measured has ended")
        finally:
            self.busy = False
        if isinstance(said, Answer):
            return said
        self.end()
        return said if isinstance(said, Failure) else Failure(f"it did not end within {limit:g} s")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._ready = None
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _start(self) -> None:
        self.end()
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(theirs, *self._place), daemon=True)
        self._process.start()
        theirs.close()

    def _heard(self, patience: float) -> object:
        assert self._pipe
        with contextlib.suppress(EOFError, OSError):
            return self._pipe.recv() if self._pipe.poll(patience) else None
        return Failure("the process that measured has ended")


def served_at(address: tuple[str, int], key: str) -> int:
    """Return how many boards a tracker knows under a key.

    Raises:
        TransportError: there is no tracker.
    """
    from tvm import rpc

    host, port = address
    try:
        # TVM's client tries for a minute where nobody listens.
        socket.create_connection((host, port), _TRACKER_SECONDS).close()
        servers = rpc.connect_tracker(host, port).summary()["server_info"]
    except Exception as error:  # TVM's own kinds, and those of sockets
        raise TransportError(f"no tracker answers at {host}:{port}", "python -m tvm.exec.rpc_tracker") from error
    return sum(each["key"] == f"server:{key}" for each in servers)


def address_of(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``; raises ConfigError where it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--tracker {text!r} is no HOST:PORT", "for instance 127.0.0.1:9190")
    return host, int(port)
