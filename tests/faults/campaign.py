# SPDX-License-Identifier: Apache-2.0
"""Strikes runs, one after the other, and keeps what became of each."""

import dataclasses
import datetime
import fcntl
import json
import os
import platform
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.course import ROLES, Course, Left
from tests.faults.deeds import Strike, folder_for
from tests.faults.judge import ending_of
from tests.faults.prepared import Prepared
from tests.faults.starts import started
from tests.faults.surroundings import Surroundings
from tests.faults.table import Row, board_weights, rows
from utvm.provenance.location import read_checkout

_WHOLE = 0.05  # How many runs begin as ./inv begins.
_PREPARED = ("host", "farm")  # In these places: in others, what comes then takes longer.


@dataclass(frozen=True)
class Injection:
    """What is to be done: drawn from the seed and the number, whatever came before."""

    number: int
    row: Row
    board: str
    suite: str
    deed: str
    moment: float  # of the time that what is struck is there
    whole: bool  # Begun as ./inv begins.


@dataclass(frozen=True)
class Result:
    """What came of an injection; all that is not right is red."""

    number: int
    kind: str
    board: str
    suite: str
    deed: str
    moment: float
    place: str
    whole: bool  # Begun as ./inv begins, not in a copy of a process that had the modules loaded.
    load: float  # How many processes the computer had to run, on average of the last minute.
    landed: bool
    ending: str
    right: bool
    orphans: Sequence[str]
    stale_locks: Sequence[str]
    next_run: str
    seconds: float
    output: str

    @property
    def red(self) -> bool:
        return not self.right or bool(self.orphans or self.stale_locks) or self.next_run not in ("", "answer")


def drawn(seed: int, number: int, table: Sequence[Row]) -> Injection:
    """Draw an injection."""
    chance = random.Random(f"{seed}-{number}")
    (row,) = chance.choices(table, [row.weight for row in table])
    suite = chance.choices(("right", "wrong"), (3, 1))[0]
    moment = round(chance.uniform(0, 1), 3)
    weights = board_weights()
    (board,) = chance.choices(row.boards, [weights[board] for board in row.boards])
    deed = chance.choice(row.deeds)
    whole = row.place not in _PREPARED or chance.random() < _WHOLE
    return Injection(number, row, board, suite, deed, moment, whole)


class Campaign:
    """Injections into runs that share their folders, so that each is the next run of those before it.

    Args:
        every: after how many injections a run is made that nobody strikes; after those that begin with an empty
            cache, which is theirs alone, it is always made.
        table: what is drawn from.
    """

    def __init__(self, around: Surroundings, seed: int, every: int, table: Sequence[Row]) -> None:
        self._around, self._seed, self._every, self._table = around, seed, every, table
        self._lifetimes: dict[tuple[str, str, bool, bool], dict[str, float]] = {}
        self._prepared: dict[frozenset[tuple[str, str]], Prepared] = {}

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._prepared.values():
            one.close()

    def results(self, numbers: Iterable[int]) -> Iterator[Result]:
        """Do what is drawn under these numbers."""
        for number in numbers:
            yield self._injected(drawn(self._seed, number, self._table))

    def _started(self, todo: Injection) -> Result:
        """Start a command that lacks something from its first moment on."""
        load = round(os.getloadavg()[0], 1)
        start = started(todo.number, self._seed, todo.deed, todo.moment, self._around)
        result = Result(
            **{key: getattr(todo, key) for key in ("number", "board", "deed", "moment")},
            kind=todo.row.name,
            suite=start.command,
            place=todo.row.place,
            whole=True,
            load=load,
            landed=True,
            ending=start.ending,
            right=start.ending in todo.row.may,
            orphans=start.orphans,
            stale_locks=_held(self._around.locks()),
            next_run="",
            seconds=round(start.seconds, 2),
            output="",
        )
        return replace(result, output=start.output[-4000:]) if result.red else result

    def _injected(self, todo: Injection) -> Result:
        if todo.row.what == "start":
            return self._started(todo)
        around = self._around
        cache = around.folder / f"cold-{todo.number}" / "cache" if todo.row.cold else around.cache
        cache = folder_for(todo.deed, cache, around.small)
        reports = folder_for(todo.deed, around.reports, around.small)
        lifetimes = self._lifetimes_of(todo, reports)
        load = round(os.getloadavg()[0], 1)
        strike, left, owes = self._struck(todo, cache, reports, lifetimes)
        around.mended()
        around.place(todo.row.place).mend()
        stale = _held(around.locks())
        ending = ending_of(left, todo.suite, signals=tuple(strike.signals), owes_report=owes)
        again = ""
        if todo.row.cold or todo.number % self._every == 0:
            again = self._clean(todo, cache, reports)
        if todo.row.cold:
            shutil.rmtree(cache, ignore_errors=True)
        result = Result(
            **{key: getattr(todo, key) for key in ("number", "board", "suite", "deed", "moment")},
            kind=todo.row.name,
            place=todo.row.place,
            whole=todo.whole,
            load=load,
            landed=strike.landed,
            ending=ending,
            right=ending in todo.row.may,
            orphans=[*left.orphans, *around.place(todo.row.place).left()],
            stale_locks=stale,
            next_run=again,
            seconds=round(left.seconds, 2),
            output="",
        )
        return replace(result, output=left.output[-4000:]) if result.red else result

    def _struck(
        self, todo: Injection, cache: Path, reports: Path, lifetimes: dict[str, float]
    ) -> tuple[Strike, Left, bool]:
        with self._begun(todo, cache, reports) as course:
            strike = Strike(course, random.Random(f"{self._seed}-{todo.number}-deed"), self._around)
            # A connection is there as long as what it leads to.
            driven = "openocd" if "openocd" in lifetimes else "qemu"
            role = driven if todo.row.what == "connection" else todo.row.what
            role = role if role in ROLES else "command"
            course.wait_for(role)
            course.sleep(todo.moment * lifetimes.get(role, 0))
            # Of some there are several, one after the other.
            course.wait_for(role)
            begun = course.begun
            deeds: dict[str, Callable[[], None]] = {
                "connection": strike.connection,
                "usb": lambda: strike.usb(todo.deed),
                "run": lambda: strike.run(todo.deed),
                "place": lambda: strike.place(self._around.place(todo.row.place), todo.deed),
            }
            deeds.get(todo.row.what, lambda: strike.process(todo.row.what, todo.deed))()
            left = course.finish(self._around.place(todo.row.place).patience)
        # The computer may be busier or idler than it was when that was measured.
        lifetimes[role] = lifetimes.get(role, 0) * (1.01 if strike.landed else 0.8)
        # Who writes the report must be able to.
        has_disk = todo.deed not in ("no growth", "no files", "full reports")
        return strike, left, begun and has_disk and todo.row.reports

    def _begun(self, todo: Injection, cache: Path, reports: Path) -> Course:
        around = self._around
        environment = dict(around.environment(cache))
        at_start: Mapping[str, str] = {}
        words: Sequence[str] = ("--board", todo.board)
        if todo.row.what == "usb":
            words, at_start = around.plugged()
        if todo.deed.startswith("clock"):
            at_start = around.jumping()
        there = around.place(todo.row.place)
        at_start = {**at_start, **there.environment}
        prepared = None if todo.whole else self._prepared_for(at_start)
        words = (*words, *there.words, "--suite", str(around.suites / f"test_{todo.suite}.py"))
        return Course(words, reports, environment | at_start, prepared, there.inside)

    def _prepared_for(self, at_start: Mapping[str, str]) -> Prepared:
        key = frozenset(at_start.items())
        if key not in self._prepared:
            self._prepared[key] = Prepared(at_start)
        return self._prepared[key]

    def _clean(self, todo: Injection, cache: Path, reports: Path) -> str:
        """Return how a run ends in the same place that nobody strikes."""
        with self._begun(todo, cache, reports) as course:
            left = course.finish(self._around.place(todo.row.place).patience)
        return "orphans" if left.orphans else ending_of(left, todo.suite)

    def _lifetimes_of(self, todo: Injection, reports: Path) -> dict[str, float]:
        """Return for how many seconds each process is there in a run that nobody strikes."""
        key = (todo.row.place, todo.board, todo.row.cold, todo.whole)
        if key not in self._lifetimes:
            cache = self._around.folder / "cold" if todo.row.cold else self._around.cache
            # The first fills the cache.
            for _ in range(1 if todo.row.cold or any(key[:3] == other[:3] for other in self._lifetimes) else 2):
                with self._begun(todo, cache, reports) as course:
                    self._lifetimes[key] = _watched(course)
            shutil.rmtree(self._around.folder / "cold", ignore_errors=True)
        return self._lifetimes[key]


def _watched(course: Course) -> dict[str, float]:
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    while course.running:
        for role in course.roles():
            first.setdefault(role, course.age)
            last[role] = course.age
        time.sleep(0.03)
    return {"command": course.age, **{role: last[role] - first[role] for role in first}}


def _held(locks: Sequence[Path]) -> list[str]:
    """Return which locks somebody still has when a run is over."""
    held = []
    for path in locks:
        handle = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(path.name)
        finally:
            os.close(handle)
    return held


def chosen(places: Sequence[str], boards: Sequence[str]) -> list[Row]:
    """Return what can be struck in some places, on some boards; no boards are all."""
    table = [row for row in rows() if row.place in places]
    if boards:
        table = [replace(row, boards=tuple(board for board in row.boards if board in boards)) for row in table]
    return [row for row in table if row.boards]


def header(seed: int, every: int, places: Sequence[str], boards: Sequence[str], busy: int) -> dict[str, Any]:
    """Say what a campaign was run with, and on what.

    Args:
        busy: how many processes kept the computer busy meanwhile.
    """
    return {
        "seed": seed,
        "every": every,
        "commit": read_checkout().commit,
        "places": list(places),
        "boards": list(boards),
        "busy": busy,
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
    }


def as_line(record: Result | Mapping[str, Any]) -> str:
    """Return a line of a file of results."""
    return json.dumps(dataclasses.asdict(record) if isinstance(record, Result) else record) + "\n"
