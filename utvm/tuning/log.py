# SPDX-License-Identifier: Apache-2.0
"""The log of tuning: a line of JSON for each candidate that was measured, all that is kept of a search."""

import importlib.metadata
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from utvm.base.storage.config import Record
from utvm.base.storage.files import check_readable, read_text
from utvm.boards import Board
from utvm.compiler.target import Target
from utvm.errors import ConfigError

_MOST_BYTES = 1 << 28

Kind = Literal["default", "kernel", "trace"]

UNITS = ("cycles", "ns", "modelled cycles", "instructions")
"""What counts: of a chip, of a process, and two of a virtual board. The first that a layer has is believed."""


class Origin(Record):
    """What a candidate was measured on, and what made it.

    Attributes:
        board: its name.
        cpu: its toolchain's file and the row of its CPU there.
        core: as its maker calls it.
        extensions: what kernels may use.
        toolchain: the compiler's own words of which one it is.
        tvm: version of the package that makes schedules.
    """

    board: str
    cpu: str
    core: str
    extensions: tuple[str, ...]
    toolchain: str
    tvm: str


class LogEntry(Origin):
    """One candidate: where it was measured, what it is, and what it took.

    Attributes:
        version: of this form.
        layer: what it computes: operator and shapes.
        kind: what ``choice`` is: ``kernel``, one of ours by its name; ``trace``, a schedule of TVM's as JSON;
            ``default``, what there is without tuning, by its name if it has one.
        choice: what computed it.
        unit: one of :data:`UNITS`.
        counts: what each run took; none where it cannot be taken.
        error: why it cannot.
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
        """The median of its runs; None where it cannot be taken."""
        return sorted(self.counts)[len(self.counts) // 2] if self.counts else None


def origin_of(board: Board) -> Origin:
    """Return what is written of each candidate for a board; raises ToolchainError without its compiler."""
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
    """Read what was measured for a core."""
    hint = "a log is what model.tune --log has written; give another, or take the line out"
    check_readable(path, hint)
    if path.stat().st_size > _MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {_MOST_BYTES} bytes", hint)
    entries = []
    for number, line in enumerate(read_text(path, hint).split("\n"), 1):
        if not line:
            continue
        try:
            entry = LogEntry.model_validate_json(line, strict=False)
        except (ValidationError, RecursionError) as error:
            raise ConfigError(f"{path}: line {number} is damaged: {_first(error)}", hint) from error
        for field in ("cpu", "core", "extensions", "toolchain", "tvm"):
            theirs, ours = getattr(entry, field), getattr(origin, field)
            if theirs != ours:
                raise ConfigError(
                    f"{path}: line {number} was measured with {field} {_spoken(theirs)}, and this is "
                    f"{_spoken(ours)}",
                    "tune for it, into a log of its own: model.tune --log FILE",
                )
        entries.append(entry)
    return entries


def append(path: Path, entries: Sequence[LogEntry]) -> None:
    """Write lines behind what a log has: whole ones, whenever this is interrupted."""
    data = "".join(f"{entry.model_dump_json()}\n" for entry in entries).encode()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(file, data) != len(data):
                raise OSError(None, "the disk is full")
        finally:
            os.close(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}", "name another file") from error


def best(entries: Sequence[LogEntry]) -> dict[str, LogEntry]:
    """Return for each layer what took least; of what was measured more than once, the last time counts."""
    found: dict[str, LogEntry] = {}
    last = {(each.layer, each.kind, each.choice, each.unit): each for each in entries}
    for unit in reversed(UNITS):
        here = [each for each in last.values() if each.unit == unit and each.count is not None]
        for layer in dict.fromkeys(each.layer for each in here):
            rows = [each for each in here if each.layer == layer]
            # Of those that are as good, what there is without tuning.
            found[layer] = min(rows, key=lambda each: (each.count or 0, each.kind != "default"))
    return found


def tuned_target(target: Target, entries: Sequence[LogEntry]) -> Target:
    """Return a target that has each layer computed by what took least."""
    choices = [(layer, each.choice) for layer, each in best(entries).items() if each.kind != "default"]
    return replace(target, tuned=tuple(choices))


def tuned_target_for(board: Board, path: str) -> Target:
    """Return what models are compiled for on a board, by what a log has; without a log, by nothing."""
    return tuned_target(board.target, read_log(Path(path), origin_of(board))) if path else board.target


def _first(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _spoken(value: str | tuple[str, ...]) -> str:
    return (", ".join(value) if isinstance(value, tuple) else value) or "none"
