# SPDX-License-Identifier: Apache-2.0
"""A process that measures on one board of a tracker: what it waits for can be ended by ending it."""

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_PIECE = 1024  # Bytes of a tensor in one call: what any board's packets hold.
_SESSION_SECONDS = 3600


@dataclass(frozen=True)
class ServedCandidate:
    """A candidate for a board that is served.

    Attributes:
        package: the archive of its library.
        inputs: bytes of each input.
        outputs: how many bytes each output has.
        repeats: by unit, how often it is run.
    """

    package: Path
    inputs: Sequence[bytes]
    outputs: Sequence[int]
    repeats: dict[str, int]


@dataclass(frozen=True)
class WorkerReady:
    """Message of a worker that has a board: the board's name, and the unit that it counts."""

    board: str
    unit: str


@dataclass(frozen=True)
class Answer:
    """What a job took and gave."""

    counts: tuple[int, ...]
    outputs: bytes


@dataclass(frozen=True)
class Failure:
    """Why a worker could not do what it was told; it ends then: whether it was the board's fault is not known."""

    reason: str


def work(connection: Connection, host: str, port: int, key: str) -> None:
    """Request a board from a tracker, and measure on it what comes, until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it.
    try:
        session = _requested(host, port, key)
        unit = _unit(session)
        connection.send(WorkerReady(str(_stats(session)["board"]), unit))
        while True:
            connection.send(_measured(session, connection.recv(), unit))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:  # TVM raises nearly every built-in kind, and its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        connection.send(Failure(lines[-1] if lines else type(error).__name__))


def _requested(host: str, port: int, key: str) -> Any:
    from tvm import rpc

    return rpc.connect_tracker(host, port).request(key, session_timeout=_SESSION_SECONDS)


def _stats(session: Any) -> dict[str, Any]:
    stats: dict[str, Any] = json.loads(session.get_function("utvm.stats")())
    return stats


def _unit(session: Any) -> str:
    return next(unit for unit in ("cycles", "instructions", "ns") if unit in _stats(session))


def _measured(session: Any, job: ServedCandidate, unit: str) -> Answer:
    session.upload(str(job.package))
    _module = session.load_module(job.package.name)
    put, run, take = (session.get_function(f"utvm.{name}") for name in ("put", "run", "take"))
    counts = []
    for _ in range(job.repeats[unit]):
        for number, data in enumerate(job.inputs):
            for at in range(0, len(data), _PIECE):
                put(number, at, bytearray(data[at : at + _PIECE]))
        counts.append(int(run()))
    outputs = b"".join(
        bytes(take(number, at, min(_PIECE, size - at)))
        for number, size in enumerate(job.outputs)
        for at in range(0, size, _PIECE)
    )
    session.remove(job.package.name)
    return Answer(tuple(counts), outputs)


if __name__ == "__main__":
    # Objects on the pipe are of this module, and it is not this module that runs as __main__.
    from utvm.tuning.worker import work as _work

    _pipe, _host, _port, _key = sys.argv[1:]
    _work(Connection(int(_pipe)), _host, int(_port), _key)
