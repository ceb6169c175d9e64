# SPDX-License-Identifier: Apache-2.0
"""Queries of a history: changed figures and tests, trends, flaky tests, and the last good run of a test."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import cast

from utvm.errors import ConfigError
from utvm.history.store import MEASURED, OUTCOMES, QUERIES, format_time
from utvm.history.values import Value, figure_of, format_difference, format_value, unknown_model

_NIGHT = 12 * 3600
_MONTH = 30 * 86400
_MIN_RUNS, _MAX_RUNS = 5, 10
"""Number of runs in each of the two windows of a measured figure."""
_DISTURBED = 0.01  # Fraction of runs that a disturbance affects.
SURE = 0.99
"""Minimum confidence for a changed measured figure."""

Row = sqlite3.Row


@dataclass(frozen=True)
class Change:
    """A changed figure of a model, or a test with another outcome.

    Attributes:
        name: the model with its executor, or the test.
        last: last commit with the old value; ``first``: first commit with the new one; None if unknown.
        sure: confidence of a measured change; 1 for a counted one.
    """

    what: str
    name: str
    board: str
    was: Value
    now: Value
    last: str | None
    first: str | None
    at: str
    sure: float = 1.0

    @property
    def difference(self) -> str:
        return format_difference(self.what, self.was, self.now)

    @property
    def old(self) -> str:
        return format_value(self.what, self.was)

    @property
    def new(self) -> str:
        """New value with its difference."""
        return f"{format_value(self.what, self.now)} {self.difference}".rstrip()


@dataclass(frozen=True)
class Point:
    started: str
    run_id: str
    commit: str | None
    model: str
    executor: str
    board: str
    figure: str
    value: Value


@dataclass(frozen=True)
class Flicker:
    """A test that passed and failed at one commit, on boards of one name and kind.

    Attributes:
        runs: the ids of the runs in which it failed.
    """

    test: str
    board: str
    commit: str
    passed: int
    failed: int
    last: str
    runs: tuple[str, ...]

    @property
    def probability(self) -> float:
        """Probability that the test itself is flaky.

        Bayes' rule, with even odds, for two hypotheses: any rate of failure is equally likely; or the result is
        always the same, and one run in a hundred is disturbed.
        """
        runs, less, more = self.passed + self.failed, *sorted((self.passed, self.failed))
        steady = (_DISTURBED**less * (1 - _DISTURBED) ** more + _DISTURBED**more * (1 - _DISTURBED) ** less) / 2
        flaky = 1 / (runs + 1)
        return round(flaky / (flaky + comb(runs, less) * steady), 4)


@dataclass(frozen=True)
class LastGood:
    """State of a test on a board.

    Attributes:
        good, good_at: commit and time of the last passing run; None if there is none.
        bad, bad_at, bad_run: commit, time and id of the first failing run after that.
        night: the nightly report of that run, if any.
    """

    test: str
    board: str
    name: str
    kind: str
    now: str
    good: str | None
    good_at: str | None
    bad: str | None
    bad_at: str | None
    bad_run: str | None
    night: str | None
    message: str


def night_boards(history: sqlite3.Connection, before: int) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield label, verdict and tests of each board of nightly runs before a time, newest first."""
    query = "select run, night, verdict from run where night <> '' and started < ? order by started desc, run desc"
    for row in history.execute(query, (before,)):
        tests = "select id, outcome from outcome join test using (test) where run = ?"
        outcomes = [{"id": name, "outcome": OUTCOMES[i]} for name, i in history.execute(tests, (row["run"],))]
        yield row["night"].partition("/")[2], row["verdict"], {"tests": outcomes}


def newest_night(history: sqlite3.Connection) -> int:
    """Return the start of the last night: twelve hours before the newest run started."""
    (newest,) = history.execute("select max(started) from run").fetchone()
    return int(newest or 0) - _NIGHT


def board_label(row: Row) -> str:
    """Return kind, name and serial number of a board: ``VIRTUAL stm32f746``."""
    return f"{row['kind'].upper()} {row['name']}" + (f" {row['serial']}" if row["serial"] else "")


def changes(history: sqlite3.Connection, since: int) -> list[Change]:
    """List changes since a time (seconds since the epoch): figures first, then tests, oldest first.

    A series without earlier values is compared with its first value since then.
    """
    points = [*_counted_figures(history, since), *_measured_figures(history, since), *_changed_tests(history, since)]
    return sorted(points, key=lambda change: (change.what != "test", change.at))


def _counted_figures(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    rows = history.execute(QUERIES["counted_figures"].format(measured=MEASURED), {"since": since})
    for row in rows.fetchall():
        runs = history.execute(QUERIES["newest_values"], (row["series"], -1))
        later = runs.fetchone()
        for earlier in runs:
            if earlier["value"] != row["now"]:
                break
            later = earlier
        yield _change(row, row["was"], row["now"], earlier["commit_"], later)


def _change(series: Row, was: Value, now: Value, last: str | None, first: Row, sure: float = 1.0) -> Change:
    name = f"{series['model']} ({series['executor']})"
    at = format_time(first["started"])
    return Change(series["figure"], name, board_label(series), was, now, last, first["commit_"], at, sure)


def _measured_figures(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    measured = f"select * from series join board using (board) where figure in {MEASURED}"
    for series in history.execute(measured).fetchall():
        rows = history.execute(QUERIES["newest_values"], (series["series"], 2 * _MAX_RUNS)).fetchall()
        if not rows or rows[0]["started"] < since:
            continue
        new = min(_MAX_RUNS, max(_MIN_RUNS, sum(row["started"] >= since for row in rows)))
        windows = rows[new : new + _MAX_RUNS], rows[:new]
        before, after = ([row["value"] for row in window] for window in windows)
        if len(before) < _MIN_RUNS:
            continue
        sure = 1 - chance(before, after)
        if sure >= SURE:
            was, now = median(before), median(after)
            yield _change(series, was, now, windows[0][0]["commit_"], windows[1][-1], round(sure, 5))


def chance(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the probability that two samples of one distribution differ at least this much.

    Two-sided permutation test of Wilcoxon's rank sum: exact, ties have their mid-rank (average rank).
    """
    values = sorted((*before, *after))
    # Twice the mid-rank is an integer.
    rank = {value: 2 * values.index(value) + values.count(value) + 1 for value in values}
    counts: list[dict[int, int]] = [{0: 1}, *({} for _ in after)]
    for value in values:
        for size in range(len(after), 0, -1):
            for total, count in counts[size - 1].items():
                total += rank[value]  # noqa: PLW2901
                counts[size][total] = counts[size].get(total, 0) + count
    expected = len(after) * (len(values) + 1)
    distance = abs(sum(rank[value] for value in after) - expected)
    sums = counts[len(after)]
    return sum(count for total, count in sums.items() if abs(total - expected) >= distance) / sum(sums.values())


def _changed_tests(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    for row in history.execute(QUERIES["tests_with_failures"], (since - _MONTH,)).fetchall():
        runs = list(_outcomes(history, row["board"], row["test"], since))
        if runs[0]["outcome"] != runs[-1]["outcome"]:
            index = max(i for i in range(1, len(runs)) if runs[i]["outcome"] != runs[i - 1]["outcome"])
            was, now = ("failed" if runs[i]["outcome"] else "passed" for i in (0, -1))
            commits = runs[index - 1]["commit_"], runs[index]["commit_"]
            at = format_time(runs[index]["started"])
            yield Change("test", row["id"], board_label(row), was, now, *commits, at)


def _outcomes(history: sqlite3.Connection, board: int, test: int, since: int) -> Iterator[Row]:
    """Yield passes and failures of a test on a board: the last before ``since``, and all later ones."""
    for query in ("outcomes_before", "outcomes_since"):
        yield from history.execute(QUERIES[query], (board, test, since))


def trend(history: sqlite3.Connection, model: str, figure: str = "", board: str = "") -> list[Point]:
    """Return values of a model's figures, run by run; optionally of one figure, on boards of one name."""
    figure = figure_of(history, model, figure) if figure else ""
    series = history.execute(QUERIES["series_of_model"], (model, figure, board)).fetchall()
    if not series:
        raise unknown_model(history, model, board)
    points = []
    for row in series:
        names = (row["model"], row["executor"], board_label(row), row["figure"])
        for started, run_id, commit, value in history.execute(QUERIES["trend"], (row["series"],)):
            points.append(Point(format_time(started), run_id, commit, *names, value))
    return points


def flaky(history: sqlite3.Connection, since: int) -> list[Flicker]:
    """Return flaky tests since a time, most failures first. Runs of modified sources are ignored."""
    rows = history.execute(QUERIES["flaky_tests"], (since,)).fetchall()
    names = dict(history.execute("select test, id from test").fetchall())
    return [
        Flicker(
            names[row["test"]],
            f"{row['kind'].upper()} {row['name']}",
            row["commit_"],
            row["passed"],
            row["failed"],
            format_time(row["last"]),
            runs=tuple(sorted(row["runs"].split(","))),
        )
        for row in sorted(rows, key=lambda row: (-row["failed"], names[row["test"]]))
    ]


def slowest(history: sqlite3.Connection, since: int) -> list[Row]:
    """Return the ten tests that took longest since a time.

    Columns: id, board, milliseconds, mean of the ten runs before, and the last 30 runs, newest first.
    """
    return history.execute(QUERIES["slowest_tests"], (since,)).fetchall()


def last_good(history: sqlite3.Connection, test: str, board: str = "") -> list[LastGood]:
    """Return the state of a test on each board where it ran, failures first.

    Args:
        test: its name in reports, or the part after ``::``.
    """
    tests = history.execute(
        "select test, id from test where id = ? or substr(id, -length(?) - 2) = '::' || ?", (test,) * 3
    ).fetchall()
    match = next((row for row in tests if row["id"] == test), tests[0] if len(tests) == 1 else None)
    if match is None:
        several = "; ".join(row["id"] for row in tests)
        raise ConfigError(f"the history has no test {test}", f"choose one of: {several}" if tests else "")
    boards = history.execute("select * from board where ? in ('', name) order by name, kind, serial", (board,))
    states = [test_state(history, row, match["test"], match["id"]) for row in boards.fetchall()]
    known = [state for state in states if state]
    if not known:
        raise ConfigError(f"{test} has no result" + (f" on {board}" if board else ""), "it was never run there")
    return sorted(known, key=lambda state: state.now != "failed")


def test_state(history: sqlite3.Connection, board: Row, test: int, name: str) -> LastGood | None:
    """Return the state of a test, given by number and name, on a board; None without a result there."""

    def find(outcomes: str, since: int, order: str) -> Row | None:
        query = QUERIES["first_or_last_run"].format(outcomes=outcomes, order=order)
        return cast("Row | None", history.execute(query, (board["board"], test, since)).fetchone())

    now = find("0, 1", 0, "desc")
    if now is None:
        return None
    good = find("0", 0, "desc")
    bad = find("1", good["started"] if good else 0, "asc") if now["outcome"] else None
    return LastGood(
        name,
        board_label(board),
        board["name"],
        board["kind"],
        "failed" if now["outcome"] else "passed",
        *((good["commit_"], format_time(good["started"])) if good else (None, None)),
        *((bad["commit_"], format_time(bad["started"]), bad["run_id"]) if bad else (None, None, None)),
        *((bad["night"], bad["message"] or "") if bad else (None, "")),
    )


def limit_crossing(
    history: sqlite3.Connection, board: str, kind: str, model: str, figure: str, maximum: float
) -> tuple[str | None, str | None]:
    """Return the last commit within a limit, and the first one since above it; None if there is no such run."""
    first = None
    for row in history.execute(QUERIES["values_of_figure"], (board, kind, model, figure)):
        if row["value"] <= maximum:
            return row["commit_"], first
        first = row["commit_"]
    return None, first
