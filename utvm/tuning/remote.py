# SPDX-License-Identifier: Apache-2.0
"""Measuring on all boards of a TVM RPC tracker at once; a board that dies costs a retry of what it measured."""

import collections
import contextlib
import multiprocessing
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import numpy as np

from utvm.base.process.interpreter import python_command
from utvm.boards import Board
from utvm.compiler import Model
from utvm.compiler.package.write import write_package
from utvm.errors import BoardError, ConfigError, TransportError
from utvm.tuning.measure import REPEATS, Candidate, CandidateResult
from utvm.tuning.worker import Answer, Failure, ServedCandidate, WorkerReady

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

    def measure(self, asked: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run each candidate on one of the boards; as :meth:`utvm.tuning.measure.Measurer.measure`.

        Boards measure the first candidates while further ones are made.
        """
        count = max(1, min(self.served(), _MOST))
        self._workers += [_Worker(*self._address, self._key) for _ in range(count - len(self._workers))]
        found = _Results()
        threads = [
            threading.Thread(target=self._drive, args=(worker, found), daemon=True)
            for worker in self._workers[:count]
        ]
        for thread in threads:
            thread.start()
        try:
            for each in asked:
                found.expect(self._job(each))
            found.expect(None)
            yield from self._answers(found)
        except BaseException:
            found.fail("nobody waits for it any more")
            raise
        for thread in threads:
            thread.join()

    def _answers(self, found: "_Results") -> Iterator[CandidateResult]:
        """Wait for each result in turn, as long as there are boards."""
        deadline = time.monotonic() + _BOARD_SECONDS
        number = 0
        while not found.wrong and number < found.total:
            answer = found.wait(number)
            if answer is not None:
                yield answer
                number += 1
            if answer is not None or any(worker.busy for worker in self._workers):
                deadline = time.monotonic() + _BOARD_SECONDS
            elif time.monotonic() > deadline:
                found.fail(f"no board with the key {self._key} is left at the tracker")
        if found.wrong:
            raise BoardError(found.wrong, "board.serve --tracker HOST:PORT --key KEY serves one")

    def _job(self, asked: Candidate) -> ServedCandidate:
        library = asked.library
        path = write_package(library, Path(self._folder.name) / f"{library.name}.tar", model=self._model)
        inputs = [np.ascontiguousarray(each).tobytes() for each in asked.inputs]
        return ServedCandidate(path, inputs, [each.size_bytes for each in library.outputs], REPEATS)

    def _drive(self, worker: "_Worker", found: "_Results") -> None:
        """Have one worker do tasks until there are none left."""
        while not found.done:
            ready = worker.started(_LOOK)
            if not ready:
                continue
            if ready.board != self._board.name:
                found.fail(f"the board with the key {self._key} is a {ready.board}, not a {self._board.name}")
                return
            self.unit = ready.unit
            task = found.next_task()
            if task is None:
                continue
            answer = worker.ask(task.job, self._limit)
            if isinstance(answer, Answer):
                found.put(task.number, CandidateResult(ready.unit, answer.counts, answer.outputs))
                continue
            task.tries += 1
            if task.tries == _TRIES:
                found.put(task.number, CandidateResult(ready.unit, (), b"", answer.reason[:200]))
            else:
                found.retry(task)


class _Results:
    """What is to be measured, and what threads have found out."""

    def __init__(self) -> None:
        self.total = 0
        self.wrong = ""
        self._all = False
        self._tasks: collections.deque[_Task] = collections.deque()
        self._measured: dict[int, CandidateResult] = {}
        self._changed = threading.Condition()

    @property
    def done(self) -> bool:
        return bool(self.wrong) or (self._all and len(self._measured) == self.total)

    def expect(self, job: ServedCandidate | None) -> None:
        """Add what is to be measured; None: that was all."""
        with self._changed:
            if job is None:
                self._all = True
            else:
                self._tasks.append(_Task(self.total, job))
                self.total += 1
            self._changed.notify_all()

    def next_task(self) -> _Task | None:
        """Return what is to be measured next; nothing if there is none for a while: the last may come back."""
        with self._changed:
            if not self._tasks and not self.done:
                self._changed.wait(_LOOK)
            return self._tasks.popleft() if self._tasks else None

    def retry(self, task: _Task) -> None:
        with self._changed:
            self._tasks.append(task)
            self._changed.notify_all()

    def put(self, number: int, measured: CandidateResult) -> None:
        with self._changed:
            self._measured[number] = measured
            self._changed.notify_all()

    def wait(self, number: int) -> CandidateResult | None:
        """Return a result, if it is there within a while."""
        with self._changed:
            if number not in self._measured and not self.wrong:
                self._changed.wait(_LOOK)
            return self._measured.get(number)

    def fail(self, why: str) -> None:
        with self._changed:
            self.wrong = why
            self._changed.notify_all()


class _Worker:
    """A process that has a board, or waits for one; a new one begins where the last one ended."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._place = (host, port, key)
        self._ready: WorkerReady | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self.busy = False

    def started(self, patience: float) -> WorkerReady | None:
        """Return what the worker has, if it has a board within so many seconds."""
        if self._ready is None:
            if self._process is None or self._process.poll() is not None:
                self._start()
            said = self._heard(patience)
            if isinstance(said, Failure):
                self.end()
                time.sleep(patience)
            self._ready = said if isinstance(said, WorkerReady) else None
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
            self._process.wait()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _start(self) -> None:
        self.end()
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            pipe = theirs.fileno()
            words = python_command("utvm.tuning.worker", str(pipe), *map(str, self._place))
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[pipe])

    def _heard(self, patience: float) -> object:
        pipe = self._pipe  # Another thread may have ended the worker.
        with contextlib.suppress(EOFError, OSError):
            if pipe is not None:
                return pipe.recv() if pipe.poll(patience) else None
        return Failure("the process that measured has ended")


def served_at(address: tuple[str, int], key: str) -> int:
    """Return how many boards a tracker knows under a key."""
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
