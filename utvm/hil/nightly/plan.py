# SPDX-License-Identifier: Apache-2.0
"""The list of boards, ``nightly.yaml``, checked before anything starts."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, drivers, errors, paths, selection
from utvm.base.storage.config import load_yaml
from utvm.farm.location import required_tags
from utvm.hil.project import Entry, ProjectFile

_HINT = "docs/nightly.md describes a list of boards"


@dataclass(frozen=True)
class Job:
    """One board's job.

    Attributes:
        label: folder name of its part of the report, unique in the list.
        kind: kind of board as far as known before the run; ``auto`` if not yet known.
    """

    entry: Entry
    board: boards.Board
    choice: selection.BoardSelection
    label: str
    kind: str


def default_list() -> Path:
    folder = paths.project()
    return folder / paths.PROJECT_FILE if folder else paths.DATA / "nightly.yaml"


def load(path: Path) -> tuple[Job, ...]:
    """Read a list of boards and check each entry."""
    jobs = []
    for number, entry in enumerate(load_yaml(path, ProjectFile, _HINT).boards):
        name = str((path.parent / entry.board).resolve()) if "/" in entry.board else entry.board
        try:
            choice = dataclasses.replace(selection.narrow(selection.BoardSelection, entry), board=name)
            board = boards.load(name)
            required_tags(selection.PlaceChoice("farm", tags=entry.tags))
            # The health check tests whether a physical board is present.
            kind: str = entry.kind
            with contextlib.suppress(errors.ProbeError):
                kind = "process" if drivers.choose(board, choice).kind == "process" else kind
        except errors.ConfigError as error:
            raise errors.ConfigError(f"{path}: boards.{number}: {error.message}", error.hint) from error
        suffixes = [""] if entry.count == 1 else [str(number + 1) for number in range(entry.count)]
        jobs += [Job(entry, board, choice, _label(entry, suffix), kind) for suffix in suffixes]
    for (i, first), (j, second) in itertools.combinations(enumerate(jobs), 2):
        if _may_be_same(first, second):
            raise errors.ConfigError(
                f"{path}: boards.{i} and boards.{j} may be the same board, {first.board.name}",
                "two runs never share a board: put the suites of both into one entry, or tell physical boards "
                "apart by serial",
            )
    return tuple(jobs)


def _label(entry: Entry, number: str) -> str:
    parts = (
        entry.board.rpartition("/")[2],
        entry.serial or ("" if entry.kind == "auto" else entry.kind),
        "" if entry.place == "host" else entry.place,
        entry.tags,
        number,
    )
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(part for part in parts if part))


def _may_be_same(first: Job, second: Job) -> bool:
    if first.entry.place == second.entry.place == "farm":
        return first.label == second.label  # a farm leases a different board to each, or the same one in turn
    if first.entry.serial and second.entry.serial:
        return first.entry.serial == second.entry.serial
    # A serial number names a USB probe; a virtual board without one is not on USB.
    kinds = {"physical" if job.entry.serial else job.kind for job in (first, second)}
    if first.entry.place != second.entry.place and kinds <= {"virtual", "process"}:
        return False
    if kinds == {"virtual"}:
        # Other settings emulate another machine.
        return first.board.full_name == second.board.full_name
    return first.board.name == second.board.name and kinds != {"physical", "virtual"}


def select(jobs: Sequence[Job], names: Sequence[str]) -> tuple[Job, ...]:
    known = {job.board.name for job in jobs}
    for name in names:
        if name not in known:
            raise errors.ConfigError(f"the list has no board {name!r}", f"boards in it: {', '.join(sorted(known))}")
    return tuple(job for job in jobs if not names or job.board.name in names)
