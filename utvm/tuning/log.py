# SPDX-License-Identifier: Apache-2.0
"""The tuning log: one line of JSON per measured candidate; the only result of a search."""

import importlib.metadata
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from utvm import boards, errors
from utvm.base.storage import config, files
from utvm.compiler.target import Target

_MOST_BYTES = 1 << 28

Kind = Literal["default", "kernel", "trace"]

UNITS = ("cycles", "ns", "modelled cycles", "instructions")
"""Units of counts: of a chip, a process, and virtual boards. The first that a layer has is used."""


class Origin(config.Record):
    """Board, compilers and core of a measurement; ``cpu``: the toolchain's file and its CPU row."""

    board: str
    cpu: str
    core: str
    extensions: tuple[str, ...]
    toolchain: str
    tvm: str


class LogEntry(Origin):
    """A measured candidate.

    Attributes:
        kind: ``kernel``: ``choice`` is the name of a kernel; ``trace``: a TVM schedule as JSON; ``default``: the
            untuned implementation, ``choice`` is the name of its kernel, if any.
    """

    version: Literal[1] = 1
    layer: Annotated[str, Field(min_length=1)]
    kind: Kind
    choice: str
    unit: Literal["cycles", "ns", "modelled cycles", "instructions"]
    counts: tuple[Annotated[int, Field(ge=0)], ...]
    error: str = ""

    @property
    def count(self) -> int | None:
        """Median of the counts; None if the candidate was rejected."""
        return sorted(self.counts)[len(self.counts) // 2] if self.counts else None


def origin_of(board: boards.Board) -> Origin:
    target = board.target
    return Origin(
        board=board.name,
        cpu=target.row,
        core=target.core,
        extensions=target.extensions,
        toolchain=board.compiler.version,
        tvm=importlib.metadata.version("apache-tvm"),
    )


def read_log(path: Path, origin: Origin) -> list[LogEntry]:
    """Read a log and check that it was measured for the same core and compilers."""
    hint = "name a log that model.tune --log wrote, or remove the line"
    files.check_readable(path, hint)
    if path.stat().st_size > _MOST_BYTES:
        raise errors.ConfigError(f"{path}: is larger than {_MOST_BYTES} bytes", hint)
    entries = []
    for number, line in enumerate(files.read_text(path, hint).split("\n"), 1):
        if not line:
            continue
        try:
            entry = LogEntry.model_validate_json(line, strict=False)
        except (ValidationError, RecursionError) as error:
            raise errors.ConfigError(f"{path}: line {number} is damaged: {_first_problem(error)}", hint) from error
        for field in ("cpu", "core", "extensions", "toolchain", "tvm"):
            theirs, ours = getattr(entry, field), getattr(origin, field)
            if theirs != ours:
                raise errors.ConfigError(
                    f"{path}: line {number} was measured with {field} {_format(theirs)}, and this is {_format(ours)}",
                    "tune again for it, into a new log: model.tune --log FILE",
                )
        entries.append(entry)
    return entries


def append(path: Path, entries: Sequence[LogEntry]) -> None:
    data = "".join(f"{entry.model_dump_json()}\n" for entry in entries).encode()
    with errors.ConfigError.on_os_error(f"{path}: cannot be written", "name another file"):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(file, data) != len(data):
                raise OSError(None, "the disk is full")
        finally:
            os.close(file)


def best_entries(entries: Sequence[LogEntry]) -> dict[str, LogEntry]:
    best: dict[str, LogEntry] = {}
    latest = {(entry.layer, entry.kind, entry.choice, entry.unit): entry for entry in entries}
    for unit in reversed(UNITS):
        counted = [entry for entry in latest.values() if entry.unit == unit and entry.count is not None]
        for layer in dict.fromkeys(entry.layer for entry in counted):
            rows = [entry for entry in counted if entry.layer == layer]
            # The untuned implementation wins a tie.
            best[layer] = min(rows, key=lambda entry: (entry.count or 0, entry.kind != "default"))
    return best


def tuned_target(target: Target, entries: Sequence[LogEntry]) -> Target:
    choices = [(layer, entry.choice) for layer, entry in best_entries(entries).items() if entry.kind != "default"]
    return replace(target, tuned=tuple(choices))


def tuned_target_for(board: boards.Board, path: str) -> Target:
    return tuned_target(board.target, read_log(Path(path), origin_of(board))) if path else board.target


def _first_problem(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _format(value: str | tuple[str, ...]) -> str:
    return (", ".join(value) if isinstance(value, tuple) else value) or "none"
