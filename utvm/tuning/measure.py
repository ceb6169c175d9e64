# SPDX-License-Identifier: Apache-2.0
"""Measuring candidates: on a local board, many in one image, or on all boards of a TVM RPC tracker at once.

If a board of a tracker dies, its candidate is measured again on another one.
"""

import contextlib
import multiprocessing
import queue
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from utvm.base.process.interpreter import python_command
from utvm.boards import Board
from utvm.compiler import Library, Model
from utvm.compiler.package.archive import write_package
from utvm.errors import BoardError, ConfigError, DoesNotFitError, ToolchainError, TransportError, UtvmError
from utvm.firmware import Firmware, build
from utvm.session.board_holder import BoardHolder, executor_for
from utvm.tuning.worker import CandidateResult, ServedCandidate, WorkerReady

REPEATS = {"instructions": 1, "modelled cycles": 1, "cycles": 3, "ns": 7}
"""Number of runs of a candidate, by unit. Counts of a virtual board do not vary."""
_TRIES = 3
_CANDIDATE_SECONDS = 120.0  # Includes linking and loading.
_TRACKER_SECONDS = 10.0
_BOARD_SECONDS = 60.0  # Without any board, until the search fails.
_POLL_SECONDS = 0.2
_MOST_BOARDS = 32
_SERVE = "board.serve --tracker HOST:PORT --key KEY serves one"
_ENDED = CandidateResult("", (), b"", "the measuring process has ended")


@dataclass(frozen=True)
class Candidate:
    library: Library
    inputs: Sequence[npt.NDArray[Any]]


class Measurer(Protocol):
    """Runs candidates on boards."""

    def measure(self, candidates: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run candidates; yield results in the same order, each as soon as it is known.

        Candidates may be generated while the first ones run.
        """


class LocalMeasurer:
    """Measures on one local board.

    Args:
        in_ram: prefer images in RAM: flash wears, and is slow to write.
    """

    def __init__(self, holder: BoardHolder, in_ram: bool) -> None:
        self._holder = holder
        self._in_ram = in_ram

    def measure(self, candidates: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """As :meth:`Measurer.measure`; candidates that do not fit into one image are split."""
        batch = list(candidates)
        if not batch:
            return
        try:
            image = self._image([candidate.library for candidate in batch])
        except (DoesNotFitError, ToolchainError) as error:
            if len(batch) == 1:
                yield CandidateResult(self._holder.connection.count_unit, (), b"", _first_line(error))
                return
            half = len(batch) // 2
            yield from self.measure(batch[:half])
            yield from self.measure(batch[half:])
            return
        for candidate in batch:
            yield self._run(image, candidate)

    def _image(self, libraries: Sequence[Library]) -> Firmware:
        capabilities = self._holder.capabilities
        executor = executor_for(capabilities)
        if self._in_ram and executor == "host_driven":
            with contextlib.suppress(DoesNotFitError):
                return build(self._holder.board, libraries, executor, in_ram=True, able=capabilities)
        return build(self._holder.board, libraries, executor, able=capabilities)

    def _run(self, image: Firmware, candidate: Candidate) -> CandidateResult:
        unit = self._holder.connection.count_unit
        try:
            session = self._holder.session(image)
            results = [session.run(candidate.library.name, candidate.inputs) for _ in range(REPEATS[unit])]
        except BoardError as error:
            if trouble := self._holder.board_failure(error):
                raise BoardError(f"the board is gone: {trouble}", "continue with the same --log") from error
            self._holder.force_reset()
            return CandidateResult(unit, (), b"", _first_line(error))
        outputs = b"".join(output.tobytes() for output in results[-1].outputs)
        return CandidateResult(unit, tuple(result.count for result in results), outputs)


def _first_line(error: UtvmError) -> str:
    return error.message.splitlines()[0][:200]


class TrackerMeasurer:
    """Measures on all boards that a tracker has under a key."""

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

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def board_count(self) -> int:
        return count_boards_at(self._address, self._key)

    def measure(self, candidates: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """As :meth:`Measurer.measure`: boards measure the first candidates while further ones are generated."""
        count = max(1, min(self.board_count(), _MOST_BOARDS))
        self._workers += [_Worker(*self._address, self._key) for _ in range(count - len(self._workers))]
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers[:count]:
            self._free.put(worker)
        self._stopped, self._last_result = False, time.monotonic()
        pool = ThreadPoolExecutor(count)
        try:
            results = [pool.submit(self._measure, self._package(candidate)) for candidate in candidates]
            for result in results:
                yield result.result()
        finally:
            self._stopped = True
            pool.shutdown(wait=False, cancel_futures=True)

    def _measure(self, candidate: ServedCandidate) -> CandidateResult:
        """Measure on the next free board; after a failure, on another one if possible."""
        tries = 0
        while not self._stopped:
            worker = self._free.get()
            try:
                if served := worker.wait_for_board(_POLL_SECONDS):
                    if served.board != self._board.name:
                        kinds = f"{served.board}, not a {self._board.name}"
                        raise BoardError(f"the board with the key {self._key} is a {kinds}", _SERVE)
                    self.unit = served.unit
                    result = worker.measure(candidate, self._limit)
                    tries += 1
                    self._last_result = time.monotonic()
                    if result.counts or tries == _TRIES:
                        return replace(result, unit=served.unit, error=result.error[:200])
            finally:
                self._free.put(worker)
            if any(worker.busy for worker in self._workers):
                self._last_result = time.monotonic()
            elif time.monotonic() > self._last_result + _BOARD_SECONDS:
                raise BoardError(f"no board with the key {self._key} is left at the tracker", _SERVE)
        raise BoardError("the search was stopped", _SERVE)

    def _package(self, candidate: Candidate) -> ServedCandidate:
        library = candidate.library
        path = write_package(library, Path(self._folder.name) / f"{library.name}.tar", model=self._model)
        inputs = [np.ascontiguousarray(array).tobytes() for array in candidate.inputs]
        return ServedCandidate(path, inputs, [output.size_bytes for output in library.outputs], REPEATS)


class _Worker:
    """A process that has or waits for a board; a new process replaces one that ended."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._request = (host, port, key)
        self._board: WorkerReady | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self.busy = False

    def wait_for_board(self, timeout: float) -> WorkerReady | None:
        if self._board is None:
            if self._process is None or self._process.poll() is not None:
                self._start()
            message = self._receive(timeout)
            if isinstance(message, CandidateResult):
                self.end()
                time.sleep(timeout)
            self._board = message if isinstance(message, WorkerReady) else None
        return self._board

    def measure(self, candidate: ServedCandidate, limit: float) -> CandidateResult:
        """Measure a candidate; on failure kill the process, since its board may hang."""
        assert self._pipe
        self.busy = True
        try:
            self._pipe.send(candidate)
            message = self._receive(limit)
        except OSError:
            message = _ENDED
        finally:
            self.busy = False
        if not isinstance(message, CandidateResult):
            message = CandidateResult("", (), b"", f"it did not end within {limit:g} s")
        if not message.counts:
            self.end()
        return message

    def end(self) -> None:
        self._board = None
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
            command = python_command("utvm.tuning.worker", str(pipe), *map(str, self._request))
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[pipe])

    def _receive(self, timeout: float) -> object:
        pipe = self._pipe  # Another thread may end the worker.
        with contextlib.suppress(EOFError, OSError):
            if pipe is not None:
                return pipe.recv() if pipe.poll(timeout) else None
        return _ENDED


def count_boards_at(address: tuple[str, int], key: str) -> int:
    from tvm import rpc

    host, port = address
    # TVM's own kinds, and those of sockets.
    with TransportError.on(Exception, f"no tracker answers at {host}:{port}", "python -m tvm.exec.rpc_tracker"):
        # TVM's client would retry for a minute.
        socket.create_connection((host, port), _TRACKER_SECONDS).close()
        servers = rpc.connect_tracker(host, port).summary()["server_info"]
    return sum(server["key"] == f"server:{key}" for server in servers)


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--tracker {text!r} is not HOST:PORT", "for instance 127.0.0.1:9190")
    return host, int(port)
