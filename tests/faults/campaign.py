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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.course import Course, Left
from tests.faults.deeds import Strike, folder_for
from tests.faults.judge import ending_of
from tests.faults.surroundings import Surroundings
from tests.faults.table import Row, rows

# Seconds that a run may take from the strike to its end, on whatever busy computer. Nothing else is timed.
_PATIENCE = 150.0
_ROLES = ("openocd", "virtual board", "qemu", "program", "compiler", "tool")


@dataclass(frozen=True)
class Injection:
    """What is to be done: drawn from the seed and the number, whatever came before."""

    number: int
    row: Row
    board: str
    suite: str
    deed: str
    moment: float  # of the time that what is struck is there; past 1 it may be too late, which is a moment as well


@dataclass(frozen=True)
class Result:
    """What came of an injection; all that is not right is red."""

    number: int
    kind: str
    board: str
    suite: str
    deed: str
    moment: float
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
    moment = round(chance.uniform(0, 1.1), 3)
    return Injection(number, row, chance.choice(row.boards), suite, chance.choice(row.deeds), moment)


class Campaign:
    """Injections into runs that share their folders, so that each is the next run of those before it.

    Args:
        every: after how many injections a run is made that nobody strikes; after those that begin with an empty
            cache, which is theirs alone, it is always made.
    """

    def __init__(self, around: Surroundings, seed: int, every: int = 1) -> None:
        self._around, self._seed, self._every = around, seed, every
        self._lifetimes: dict[tuple[str, bool], Mapping[str, float]] = {}

    def results(self, numbers: Iterator[int]) -> Iterator[Result]:
        """Do what is drawn under these numbers."""
        table = rows()
        for number in numbers:
            yield self._injected(drawn(self._seed, number, table))

    def _injected(self, todo: Injection) -> Result:
        around = self._around
        cache = around.folder / f"cold-{todo.number}" / "cache" if todo.row.cold else around.cache
        cache = folder_for(todo.deed, cache, around.small)
        reports = folder_for(todo.deed, around.reports, around.small)
        lifetimes = self._lifetimes_of(todo, reports)
        strike, left, owes = self._struck(todo, cache, reports, lifetimes)
        around.empty()
        around.jump(0)
        if todo.row.what == "usb":
            around.plug_in()
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
            landed=strike.landed,
            ending=ending,
            right=ending in todo.row.may,
            orphans=left.orphans,
            stale_locks=stale,
            next_run=again,
            seconds=round(left.seconds, 2),
            output="",
        )
        return dataclasses.replace(result, output=left.output[-4000:]) if result.red else result

    def _struck(
        self, todo: Injection, cache: Path, reports: Path, lifetimes: Mapping[str, float]
    ) -> tuple[Strike, Left, bool]:
        with self._begun(todo, cache, reports) as course:
            strike = Strike(course, random.Random(f"{self._seed}-{todo.number}-deed"), self._around)
            # A connection is there as long as what it leads to.
            driven = "openocd" if "openocd" in lifetimes else "qemu"
            role = driven if todo.row.what == "connection" else todo.row.what
            if role in _ROLES:
                course.wait_for(role)
            course.sleep(todo.moment * lifetimes.get(role if role in _ROLES else "command", 0))
            begun = course.begun
            deeds: dict[str, Callable[[], None]] = {
                "connection": strike.connection,
                "usb": lambda: strike.usb(todo.deed),
                "run": lambda: strike.run(todo.deed),
            }
            deeds.get(todo.row.what, lambda: strike.process(todo.row.what, todo.deed))()
            left = course.finish(_PATIENCE)
        has_disk = todo.deed not in ("no growth", "no files", "full reports")
        return strike, left, begun and has_disk

    def _begun(self, todo: Injection, cache: Path, reports: Path) -> Course:
        around = self._around
        environment = dict(around.environment(cache))
        words: Sequence[str] = ("--board", todo.board)
        if todo.row.what == "usb":
            words, more = around.plugged()
            environment |= more
        if todo.deed.startswith("clock"):
            environment |= around.jumping()
        return Course(words, todo.suite, around.suites, reports, environment)

    def _clean(self, todo: Injection, cache: Path, reports: Path) -> str:
        """Return how a run ends in the same place that nobody strikes."""
        with self._begun(todo, cache, reports) as course:
            seen = _watched(course)
            left = course.finish(_PATIENCE)
        # The computer may be busier or idler than it was.
        self._lifetimes[todo.board, False] = seen
        return "orphans" if left.orphans else ending_of(left, todo.suite)

    def _lifetimes_of(self, todo: Injection, reports: Path) -> Mapping[str, float]:
        """Return for how many seconds each process is there in a run that nobody strikes."""
        key = (todo.board, todo.row.cold)
        if key not in self._lifetimes:
            cache = self._around.folder / "cold" if todo.row.cold else self._around.cache
            for _ in range(1 if todo.row.cold else 2):  # The first fills the cache.
                with self._begun(todo, cache, reports) as course:
                    self._lifetimes[key] = _watched(course)
            shutil.rmtree(self._around.folder / "cold", ignore_errors=True)
        return self._lifetimes[key]


def _watched(course: Course) -> Mapping[str, float]:
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


def header(seed: int, every: int) -> dict[str, Any]:
    """Say what a campaign was run with, and on what."""
    return {
        "seed": seed,
        "every": every,
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
    }


def as_line(record: Result | Mapping[str, Any]) -> str:
    """Return a line of a file of results."""
    return json.dumps(dataclasses.asdict(record) if isinstance(record, Result) else record) + "\n"
