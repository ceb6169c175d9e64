# SPDX-License-Identifier: Apache-2.0
"""Measuring candidates on a board: many in one image, each run on the same inputs."""

import collections
import contextlib
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from utvm.boards import Board
from utvm.compiler import Library, Model
from utvm.compiler.package.write import write_package
from utvm.errors import BoardError, ConfigError, DoesNotFitError, ToolchainError, TransportError, UtvmError
from utvm.firmware import Firmware, build
from utvm.session.board_holder import BoardHolder
from utvm.session.open_session import executor_for
from utvm.tuning.worker import Answer, Failure, ServedBoard, ServedCandidate, work

REPEATS = {"instructions": 1, "modelled cycles": 1, "cycles": 3, "ns": 7}
"""How often a candidate is run, by the unit: a virtual board counts the same each time."""


@dataclass(frozen=True)
class Candidate:
    """A library of one layer, and what it is run on."""

    library: Library
    inputs: Sequence[npt.NDArray[Any]]


@dataclass(frozen=True)
class CandidateResult:
    """What a candidate took and gave; without counts, why it could not be run."""

    unit: str
    counts: tuple[int, ...]
    outputs: bytes
    error: str = ""

    @property
    def count(self) -> int:
        """The median of the counts; raises IndexError where there are none."""
        return sorted(self.counts)[len(self.counts) // 2]


class Measurer(Protocol):
    """Something that runs candidates on boards."""

    def measure(self, asked: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run each candidate; what it answers is in their order, each as soon as it is known.

        Candidates may still be made while the first ones run.
        """


class LocalMeasurer:
    """Measures on one board, here.

    Args:
        keeper: has the board, attached.
        in_ram: whether images are put into RAM where they fit and code may run there: flash wears, and is slow
            to write.
    """

    def __init__(self, keeper: BoardHolder, in_ram: bool) -> None:
        self._keeper = keeper
        self._in_ram = in_ram

    def measure(self, asked: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run each candidate; as :meth:`Measurer.measure`. What is too much for one image is measured in two."""
        chosen = list(asked)
        if not chosen:
            return
        try:
            image = self._image([each.library for each in chosen])
        except (DoesNotFitError, ToolchainError) as error:
            if len(chosen) == 1:
                yield CandidateResult(self._keeper.bench.count_unit, (), b"", _short(error))
                return
            half = len(chosen) // 2
            yield from self.measure(chosen[:half])
            yield from self.measure(chosen[half:])
            return
        for each in chosen:
            yield self._run(image, each)

    def _image(self, libraries: Sequence[Library]) -> Firmware:
        capabilities = self._keeper.capabilities
        executor = executor_for(capabilities)
        if self._in_ram and executor == "host_driven":
            try:
                return build(self._keeper.board, libraries, executor, in_ram=True, able=capabilities)
            except DoesNotFitError:
                pass
        return build(self._keeper.board, libraries, executor, able=capabilities)

    def _run(self, image: Firmware, asked: Candidate) -> CandidateResult:
        unit = self._keeper.bench.count_unit
        counts: list[int] = []
        outputs = b""
        try:
            session = self._keeper.session(image)
            for _ in range(REPEATS[unit]):
                result = session.run(asked.library.name, asked.inputs)
                counts.append(result.count)
                outputs = b"".join(each.tobytes() for each in result.outputs)
        except BoardError as error:
            if trouble := self._keeper.trouble_behind(error):
                raise BoardError(f"the board is gone: {trouble}", "go on with the same --log") from error
            self._keeper.distrust()
            return CandidateResult(unit, (), b"", _short(error))
        return CandidateResult(unit, tuple(counts), outputs)


def _short(error: UtvmError) -> str:
    return error.message.splitlines()[0][:200]


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


class TrackerMeasurer:
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

    def __enter__(self) -> "TrackerMeasurer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def served(self) -> int:
        """Return how many boards the tracker knows under the key; raises as :func:`count_boards_at`."""
        return count_boards_at(self._address, self._key)

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
        pipe = self._pipe  # Another thread may have ended the worker.
        with contextlib.suppress(EOFError, OSError):
            if pipe is not None:
                return pipe.recv() if pipe.poll(patience) else None
        return Failure("the process that measured has ended")


def count_boards_at(address: tuple[str, int], key: str) -> int:
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


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``; raises ConfigError where it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--tracker {text!r} is no HOST:PORT", "for instance 127.0.0.1:9190")
    return host, int(port)
