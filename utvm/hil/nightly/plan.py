# SPDX-License-Identifier: Apache-2.0
"""What a nightly run is to do: ``nightly.yaml``, checked before anything is started."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm import boards
from utvm.base.storage.config import load_yaml
from utvm.boards import Board
from utvm.drivers import DriverOptions, choose
from utvm.environment.locations.remote_command import Wanted
from utvm.errors import ConfigError, ProbeError
from utvm.farm.location import wish_of
from utvm.hil.project import Entry, ProjectFile
from utvm.options import narrow
from utvm.paths import DATA, PROJECT_FILE, project
from utvm.selection import BoardSelection, PlaceChoice

_HINT = "docs/nightly.md says what a list of boards holds"


@dataclass(frozen=True)
class Job:
    """One board's turn.

    Attributes:
        choice: what ``hil`` is told of it; its folder by the absolute path.
        label: what its part of the report is called; no other board of the list has the same.
        kind: what it is before it was reached: ``auto`` where that is yet to be seen.
    """

    entry: Entry
    board: Board
    choice: BoardSelection
    label: str
    kind: str


def default_list() -> Path:
    """Return the list of the current project, else that of utvm."""
    folder = project()
    return folder / PROJECT_FILE if folder else DATA / "nightly.yaml"


def load(path: Path) -> tuple[Job, ...]:
    """Read a list of boards and look at each of them."""
    turns = []
    for number, entry in enumerate(load_yaml(path, ProjectFile, _HINT).boards):
        where = str((path.parent / entry.board).resolve()) if "/" in entry.board else entry.board
        try:
            choice = dataclasses.replace(narrow(BoardSelection, entry), board=where)
            board = boards.load(where)
            wish_of(Wanted(board, entry.kind, entry.serial), PlaceChoice("farm", tags=entry.tags))
            # Whether a physical board is there now is its health check's business.
            kind: str = entry.kind
            with contextlib.suppress(ProbeError):
                found = choose(board, DriverOptions(entry.kind, entry.serial))
                kind = "process" if found.kind == "process" else kind
        except ConfigError as error:
            raise ConfigError(f"{path}: boards.{number}: {error.message}", error.hint) from error
        numbers = [""] if entry.count == 1 else [str(each + 1) for each in range(entry.count)]
        turns += [Job(entry, board, choice, _label(entry, each), kind) for each in numbers]
    for (i, one), (j, other) in itertools.combinations(enumerate(turns), 2):
        if _may_be_one(one, other):
            raise ConfigError(
                f"{path}: boards.{i} and boards.{j} may be the same board, {one.board.name}",
                "two runs never share a board: put the suites of both into one entry, or tell physical boards "
                "apart by serial",
            )
    return tuple(turns)


def _label(entry: Entry, number: str) -> str:
    """Return what a turn's part of the report is called: a folder's name, too; settings stand behind a colon."""
    parts = (
        entry.board.rpartition("/")[2],
        entry.serial or ("" if entry.kind == "auto" else entry.kind),
        "" if entry.place == "host" else entry.place,
        entry.tags,
        number,
    )
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(part for part in parts if part))


def _may_be_one(one: Job, other: Job) -> bool:
    """Whether both could be on one board: the same probe, or one name and nothing that tells them apart."""
    if one.entry.place == other.entry.place == "farm":
        return one.label == other.label  # else a farm has one for each of them, or one after the other
    if one.entry.serial and other.entry.serial:
        return one.entry.serial == other.entry.serial
    # A serial number names a probe on USB, which no virtual board without one has.
    kinds = {"physical" if turn.entry.serial else turn.kind for turn in (one, other)}
    if one.entry.place != other.entry.place and kinds <= {"virtual", "process"}:
        return False
    if kinds == {"virtual"}:
        # With another setting, it is another machine that is emulated.
        return one.board.full_name == other.board.full_name
    return one.board.name == other.board.name and kinds != {"physical", "virtual"}


def select(turns: Sequence[Job], names: Sequence[str]) -> tuple[Job, ...]:
    """Return the turns of the boards of these names; all where none is named."""
    known = {turn.board.name for turn in turns}
    for name in names:
        if name not in known:
            raise ConfigError(f"the list has no board {name!r}", f"boards in it: {', '.join(sorted(known))}")
    return tuple(turn for turn in turns if not names or turn.board.name in names)
