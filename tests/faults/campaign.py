# SPDX-License-Identifier: Apache-2.0
"""Injects faults into runs, one after the other, and records each result."""

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

from tests.faults.actions import Strike, folder_for
from tests.faults.judge import ending_of
from tests.faults.prepared import PreparedProcess
from tests.faults.starts import run_start
from tests.faults.suite_run import ROLES, Outcome, SuiteRun
from tests.faults.surroundings import Surroundings
from tests.faults.table import Row, board_weights, rows
from utvm.provenance.location import read_checkout

_WHOLE = 0.05  # Fraction of runs that start like ./inv.
_PREPARED = ("host", "farm")  # In other locations, the start is a small part of a run.


@dataclass(frozen=True)
class Injection:
    """A fault to inject: it depends on the seed and the number only."""

    number: int
    row: Row
    board: str
    suite: str
    action: str
    moment: float  # as a fraction of the target's lifetime
    whole: bool  # Started like ./inv.


@dataclass(frozen=True)
class Result:
    """The result of an injection; it is red if any part is wrong."""

    number: int
    kind: str
    board: str
    suite: str
    action: str
    moment: float
    place: str
    whole: bool  # Started like ./inv, not as a copy of a process with loaded modules.
    load: float  # Load average of the last minute.
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


def draw(seed: int, number: int, table: Sequence[Row]) -> Injection:
    chance = random.Random(f"{seed}-{number}")
    (row,) = chance.choices(table, [row.weight for row in table])
    suite = chance.choices(("right", "wrong"), (3, 1))[0]
    moment = round(chance.uniform(0, 1), 3)
    weights = board_weights()
    (board,) = chance.choices(row.boards, [weights[board] for board in row.boards])
    action = chance.choice(row.actions)
    whole = row.place not in _PREPARED or chance.random() < _WHOLE
    return Injection(number, row, board, suite, action, moment, whole)


class Campaign:
    """Injections into runs that share their folders: each run starts with the files of those before it.

    Args:
        every: number of injections per undisturbed run; one always follows an injection with an empty cache.
        table: the faults to draw from.
    """

    def __init__(self, around: Surroundings, seed: int, every: int, table: Sequence[Row]) -> None:
        self._around, self._seed, self._every, self._table = around, seed, every, table
        self._lifetimes: dict[tuple[str, str, bool, bool], dict[str, float]] = {}
        self._prepared: dict[frozenset[tuple[str, str]], PreparedProcess] = {}

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        for prepared in self._prepared.values():
            prepared.close()

    def results(self, numbers: Iterable[int]) -> Iterator[Result]:
        """Inject the faults with these numbers."""
        for number in numbers:
            yield self._inject(draw(self._seed, number, self._table))

    def _run_start(self, injection: Injection) -> Result:
        """Run a command that is limited from its first moment on."""
        load = round(os.getloadavg()[0], 1)
        run = run_start(injection.number, self._seed, injection.action, injection.moment, self._around)
        result = Result(
            **{key: getattr(injection, key) for key in ("number", "board", "action", "moment")},
            kind=injection.row.name,
            suite=run.command,
            place=injection.row.place,
            whole=True,
            load=load,
            landed=True,
            ending=run.ending,
            right=run.ending in injection.row.may,
            orphans=run.orphans,
            stale_locks=_held_locks(self._around.locks()),
            next_run="",
            seconds=round(run.seconds, 2),
            output="",
        )
        return replace(result, output=run.output[-4000:]) if result.red else result

    def _inject(self, injection: Injection) -> Result:
        if injection.row.what == "start":
            return self._run_start(injection)
        around = self._around
        cache = around.folder / f"cold-{injection.number}" / "cache" if injection.row.cold else around.cache
        cache = folder_for(injection.action, cache, around.small)
        reports = folder_for(injection.action, around.reports, around.small)
        lifetimes = self._lifetimes_of(injection, reports)
        load = round(os.getloadavg()[0], 1)
        strike, outcome, owes_report = self._strike(injection, cache, reports, lifetimes)
        around.restore()
        around.place(injection.row.place).mend()
        stale = _held_locks(around.locks())
        ending = ending_of(outcome, injection.suite, signals=tuple(strike.signals), owes_report=owes_report)
        again = ""
        if injection.row.cold or injection.number % self._every == 0:
            again = self._undisturbed_ending(injection, cache, reports)
        if injection.row.cold:
            shutil.rmtree(cache, ignore_errors=True)
        result = Result(
            **{key: getattr(injection, key) for key in ("number", "board", "suite", "action", "moment")},
            kind=injection.row.name,
            place=injection.row.place,
            whole=injection.whole,
            load=load,
            landed=strike.landed,
            ending=ending,
            right=ending in injection.row.may,
            orphans=[*outcome.orphans, *around.place(injection.row.place).leftovers()],
            stale_locks=stale,
            next_run=again,
            seconds=round(outcome.seconds, 2),
            output="",
        )
        return replace(result, output=outcome.output[-4000:]) if result.red else result

    def _strike(
        self, injection: Injection, cache: Path, reports: Path, lifetimes: dict[str, float]
    ) -> tuple[Strike, Outcome, bool]:
        with self._start(injection, cache, reports) as suite_run:
            strike = Strike(suite_run, random.Random(f"{self._seed}-{injection.number}-deed"), self._around)
            # A connection lives as long as the process at its other end.
            driver = "openocd" if "openocd" in lifetimes else "qemu"
            role = driver if injection.row.what == "connection" else injection.row.what
            role = role if role in ROLES else "command"
            suite_run.wait_for(role)
            suite_run.sleep(injection.moment * lifetimes.get(role, 0))
            # There are several of some processes, one after the other.
            suite_run.wait_for(role)
            has_started = suite_run.has_started
            actions: dict[str, Callable[[], None]] = {
                "connection": strike.connection,
                "usb": lambda: strike.usb(injection.action),
                "run": lambda: strike.run(injection.action),
                "place": lambda: strike.place(self._around.place(injection.row.place), injection.action),
            }
            actions.get(injection.row.what, lambda: strike.process(injection.row.what, injection.action))()
            outcome = suite_run.finish(self._around.place(injection.row.place).patience)
        # The load of the computer may have changed since the measurement.
        lifetimes[role] = lifetimes.get(role, 0) * (1.01 if strike.landed else 0.8)
        # A run owes a report only if it can write one.
        has_disk = injection.action not in ("no growth", "no files", "full reports")
        return strike, outcome, has_started and has_disk and injection.row.reports

    def _start(self, injection: Injection, cache: Path, reports: Path) -> SuiteRun:
        around = self._around
        environment = dict(around.environment(cache))
        at_start: Mapping[str, str] = {}
        words: Sequence[str] = ("--board", injection.board)
        if injection.row.what == "usb":
            words, at_start = around.plugged()
        if injection.action.startswith("clock"):
            at_start = around.jumping()
        place = around.place(injection.row.place)
        at_start = {**at_start, **place.environment}
        prepared = None if injection.whole else self._prepared_process(at_start)
        words = (*words, *place.words, "--suite", str(around.suites / f"test_{injection.suite}.py"))
        return SuiteRun(words, reports, environment | at_start, prepared, place.inside)

    def _prepared_process(self, at_start: Mapping[str, str]) -> PreparedProcess:
        key = frozenset(at_start.items())
        if key not in self._prepared:
            self._prepared[key] = PreparedProcess(at_start)
        return self._prepared[key]

    def _undisturbed_ending(self, injection: Injection, cache: Path, reports: Path) -> str:
        """Return the ending of an undisturbed run in the same location."""
        with self._start(injection, cache, reports) as suite_run:
            outcome = suite_run.finish(self._around.place(injection.row.place).patience)
        return "orphans" if outcome.orphans else ending_of(outcome, injection.suite)

    def _lifetimes_of(self, injection: Injection, reports: Path) -> dict[str, float]:
        """Return the lifetime of each process in an undisturbed run, in seconds."""
        key = (injection.row.place, injection.board, injection.row.cold, injection.whole)
        if key not in self._lifetimes:
            cache = self._around.folder / "cold" if injection.row.cold else self._around.cache
            # The first run fills the cache.
            for _ in range(1 if injection.row.cold or any(key[:3] == other[:3] for other in self._lifetimes) else 2):
                with self._start(injection, cache, reports) as suite_run:
                    self._lifetimes[key] = _measure_lifetimes(suite_run)
            shutil.rmtree(self._around.folder / "cold", ignore_errors=True)
        return self._lifetimes[key]


def _measure_lifetimes(suite_run: SuiteRun) -> dict[str, float]:
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    while suite_run.running:
        for role in suite_run.roles():
            first.setdefault(role, suite_run.age)
            last[role] = suite_run.age
        time.sleep(0.03)
    return {"command": suite_run.age, **{role: last[role] - first[role] for role in first}}


def _held_locks(locks: Sequence[Path]) -> list[str]:
    """Return the locks that are still held after a run."""
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


def select_rows(places: Sequence[str], boards: Sequence[str]) -> list[Row]:
    """Return the rows with these places and boards; no boards are all."""
    table = [row for row in rows() if row.place in places]
    if boards:
        table = [replace(row, boards=tuple(board for board in row.boards if board in boards)) for row in table]
    return [row for row in table if row.boards]


def create_header(seed: int, every: int, places: Sequence[str], boards: Sequence[str], busy: int) -> dict[str, Any]:
    """Describe a campaign and the computer.

    Args:
        busy: the number of processes that kept the computer busy.
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


def to_line(record: Result | Mapping[str, Any]) -> str:
    """Return a line of a file of results."""
    return json.dumps(dataclasses.asdict(record) if isinstance(record, Result) else record) + "\n"
