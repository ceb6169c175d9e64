# SPDX-License-Identifier: Apache-2.0
"""A process that measures on one board of a tracker. Killing it ends any wait for the board."""

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_CHUNK = 1024  # Bytes of a tensor in a call; fits the packets of any board.
_SESSION_SECONDS = 3600


@dataclass(frozen=True)
class ServedCandidate:
    """A candidate for a served board; ``repeats`` is the number of runs, by unit."""

    package: Path
    inputs: Sequence[bytes]
    outputs: Sequence[int]
    repeats: dict[str, int]


@dataclass(frozen=True)
class WorkerReady:
    """Message of a worker that got a board: its name, and the unit of its counts."""

    board: str
    unit: str


@dataclass(frozen=True)
class CandidateResult:
    """Counts and outputs of a candidate; without counts, ``error`` is the reason for its rejection."""

    unit: str
    counts: tuple[int, ...]
    outputs: bytes
    error: str = ""

    @property
    def count(self) -> int:
        """Median of the counts; raises IndexError if there are none."""
        return sorted(self.counts)[len(self.counts) // 2]


def work(connection: Connection, host: str, port: int, key: str) -> None:
    """Request a board from a tracker, and measure received candidates until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    try:
        from tvm import rpc

        session = rpc.connect_tracker(host, port).request(key, session_timeout=_SESSION_SECONDS)
        stats: dict[str, Any] = json.loads(session.get_function("utvm.stats")())
        unit = next(unit for unit in ("cycles", "instructions", "ns") if unit in stats)
        connection.send(WorkerReady(str(stats["board"]), unit))
        while True:
            connection.send(_measure(session, connection.recv(), unit))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:  # TVM raises nearly every built-in kind, and its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        connection.send(CandidateResult("", (), b"", lines[-1] if lines else type(error).__name__))


def _measure(session: Any, candidate: ServedCandidate, unit: str) -> CandidateResult:
    name = candidate.package.name
    session.upload(str(candidate.package))
    _module = session.load_module(name)
    put, run, take = (session.get_function(f"utvm.{function}") for function in ("put", "run", "take"))
    counts = []
    for _ in range(candidate.repeats[unit]):
        for number, data in enumerate(candidate.inputs):
            for at in range(0, len(data), _CHUNK):
                put(number, at, bytearray(data[at : at + _CHUNK]))
        counts.append(int(run()))
    outputs = b"".join(
        bytes(take(number, at, min(_CHUNK, size - at)))
        for number, size in enumerate(candidate.outputs)
        for at in range(0, size, _CHUNK)
    )
    session.remove(name)
    return CandidateResult(unit, tuple(counts), outputs)


if __name__ == "__main__":
    # Objects on the pipe belong to this module by its real name, not to __main__.
    from utvm.tuning.worker import work as _work

    _pipe, _host, _port, _key = sys.argv[1:]
    _work(Connection(int(_pipe)), _host, int(_port), _key)
