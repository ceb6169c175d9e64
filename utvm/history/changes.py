# SPDX-License-Identifier: Apache-2.0
"""What has changed since when: figures that are counted, figures that are measured, and tests."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from utvm.errors import ConfigError
from utvm.history.store import MEASURED, format_time

_NIGHT = 12 * 3600
_MONTH = 30 * 86400
_LEAST, _MOST = 5, 10
"""Runs in each of the two windows of a measured figure."""
SURE = 0.99
"""How sure it must be that a measured figure has changed."""

Value = int | float | str
Row = sqlite3.Row


@dataclass(frozen=True)
class Change:
    """A figure of a model, or a test, that is not what it was.

    Attributes:
        what: the figure's name; ``test`` for a test.
        name: the model with its executor, or the test.
        board: with its kind, and serial number where it has one.
        was: the figure before, or how the test ended.
        last: the last commit that had it so, and ``first`` the first that has not; None where none is known.
        at: when the first run began that has it otherwise, UTC.
        sure: 1 of what is counted; of what is measured, how improbable it is that only chance has been at work.
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
        """The change in words: ``+12 (+0.10 %)``; nothing of what is no number."""
        if isinstance(self.was, str) or isinstance(self.now, str):
            return ""
        by = self.now - self.was
        share = f" ({100 * by / self.was:+.2f} %)" if self.was else ""
        return (f"{by:+,}" if isinstance(by, int) else f"{by:+.4g}") + share


def newest_night(history: sqlite3.Connection) -> int:
    """Return from when runs are the last night's: twelve hours before the newest began."""
    (newest,) = history.execute("select max(started) from run").fetchone()
    return int(newest or 0) - _NIGHT


def changes(history: sqlite3.Connection, since: int) -> list[Change]:
    """Return what is otherwise than it was before a format_time, in seconds since 1970; the latest change first.

    Where there was nothing before, the first run since then is what the newest is compared with.
    """
    found = [*_counted(history, since), *_measured(history, since), *_tests(history, since)]
    return sorted(found, key=lambda change: (change.what != "test", change.at), reverse=False)


def board_label(row: Row) -> str:
    """Return a board as lines for readers call it: what is virtual is called so."""
    return f"{row['kind'].upper()} {row['name']}" + (f" {row['serial']}" if row["serial"] else "")


_SERIES = "select * from series join board using (board)"


def _counted(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    one = "(select value from figure f where f.series = series.series and {} limit 1)"
    before = one.format("started < :since order by started desc, run desc")
    first = one.format("started >= :since order by started, run")
    newest = one.format("started >= :since order by started desc, run desc")
    rows = history.execute(
        f"select * from (select *, coalesce({before}, {first}) was, {newest} now from series"
        f" where figure not in {MEASURED}) join board using (board) where was <> now",
        {"since": since},
    )
    for row in rows.fetchall():
        runs = history.execute(
            "select value, commit_, figure.started from figure join run using (run) where series = ?"
            " order by figure.started desc, run desc",
            (row["series"],),
        )
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


def _measured(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    for series in history.execute(f"{_SERIES} where figure in {MEASURED}").fetchall():
        rows = history.execute(
            "select value, commit_, figure.started from figure join run using (run) where series = ?"
            " order by figure.started desc, run desc limit ?",
            (series["series"], 2 * _MOST),
        ).fetchall()
        if not rows or rows[0]["started"] < since:
            continue
        new = min(_MOST, max(_LEAST, sum(row["started"] >= since for row in rows)))
        windows = rows[new : new + _MOST], rows[:new]
        before, after = ([row["value"] for row in window] for window in windows)
        if len(before) < _LEAST:
            continue
        sure = 1 - chance(before, after)
        if sure >= SURE:
            was, now = median(before), median(after)
            yield _change(series, was, now, windows[0][0]["commit_"], windows[1][-1], round(sure, 5))


def chance(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how probable it is that values of one kind fall into two windows as unevenly as these, or more so.

    That is the two-sided permutation test of Wilcoxon's rank sum, exact, with ties at their middle ranks.
    """
    everything = sorted((*before, *after))
    # Twice the middle rank is a whole number.
    rank = {value: 2 * everything.index(value) + everything.count(value) + 1 for value in everything}
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in after)]
    for value in everything:
        for size in range(len(after), 0, -1):
            for total, count in ways[size - 1].items():
                reached = total + rank[value]
                ways[size][reached] = ways[size].get(reached, 0) + count
    expected = len(after) * (len(everything) + 1)
    apart = abs(sum(rank[value] for value in after) - expected)
    all_ways = ways[len(after)]
    return sum(count for total, count in all_ways.items() if abs(total - expected) >= apart) / sum(
        all_ways.values()
    )


def _tests(history: sqlite3.Connection, since: int) -> Iterator[Change]:
    candidates = history.execute(
        "select distinct board.*, test.test, id from run join outcome using (run) join test using (test)"
        " join board using (board) where outcome = 1 and started >= ?",
        (since - _MONTH,),
    )
    for row in candidates.fetchall():
        answers = list(_answers(history, row["board"], row["test"], since))
        if len(answers) > 1 and answers[0]["outcome"] != answers[-1]["outcome"]:
            turn = max(i for i in range(1, len(answers)) if answers[i]["outcome"] != answers[i - 1]["outcome"])
            words = ["failed" if answers[i]["outcome"] else "passed" for i in (0, -1)]
            first = answers[turn]
            yield Change(
                *("test", row["id"], board_label(row), words[0], words[1]),
                *(answers[turn - 1]["commit_"], first["commit_"], format_time(first["started"])),
            )


def _answers(history: sqlite3.Connection, board: int, test: int, since: int) -> Iterator[Row]:
    """Go through a test's answers on a board: the last one before a format_time, and all since."""
    asked = (
        "select outcome, commit_, started from run join outcome using (run)"
        " where board = ? and test = ? and outcome in (0, 1) and started {} ? order by started {}, run {}"
    )
    yield from history.execute(asked.format("<", "desc", "desc limit 1"), (board, test, since))
    yield from history.execute(asked.format(">=", "asc", "asc"), (board, test, since))


@dataclass(frozen=True)
class Point:
    """A figure of a model in one run on a board."""

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
    """A test that passed and failed at one commit, on boards of one name and kind."""

    test: str
    board: str
    commit: str
    passed: int
    failed: int
    last: str


@dataclass(frozen=True)
class LastGood:
    """How a test does on a board.

    Attributes:
        now: how it ended last, ``passed`` or ``failed``.
        good, good_at: commit and moment of the last run that it passed in; None where there is none.
        bad, bad_at: the same of the first run after that it failed in.
        night: of that run's report, if it was one of a night; ``bad_run`` is the run.
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


def trend(history: sqlite3.Connection, model: str, figure: str = "", board: str = "") -> list[Point]:
    """Return how the figures of a model have gone, run by run.

    Args:
        figure: only this one.
        board: only on boards of this name.
    """
    rows = history.execute(
        "select f.value, f.started, run_id, commit_, s.*, b.name, b.kind, b.serial from series s"
        " join board b using (board) join figure f using (series) join run using (run)"
        " where s.model = ? and ? in ('', s.figure) and ? in ('', b.name)"
        " order by s.figure, b.name, b.kind, b.serial, s.executor, f.started, run",
        (model, figure, board),
    ).fetchall()
    if not rows:
        known = ", ".join(row[0] for row in history.execute("select distinct model from series order by 1"))
        raise ConfigError(
            f"the history has no {figure or 'figures'} of {model}" + (f" on {board}" if board else ""),
            f"models in it: {known or 'none'}",
        )
    return [
        Point(
            *(format_time(row["started"]), row["run_id"], row["commit_"], row["model"], row["executor"]),
            *(board_label(row), row["figure"], row["value"]),
        )
        for row in rows
    ]


def flaky(history: sqlite3.Connection, since: int) -> list[Flicker]:
    """Return the tests that flickered since a format_time, what failed most first.

    A run of sources with changes counts for none: they were not that commit's.
    """
    rows = history.execute(
        "select test, name, kind, commit_, count(*) failed, max(started) last,"
        " (select count(*) from run r join board c using (board) join outcome o using (run)"
        "   where r.commit_ = run.commit_ and c.name = board.name and c.kind = board.kind and not r.dirty"
        "   and o.test = outcome.test and o.outcome = 0) passed"
        " from run cross join outcome using (run) join board using (board)"
        " where started >= ? and outcome = 1 and not dirty group by test, name, kind, commit_ having passed",
        (since,),
    ).fetchall()
    names = dict(history.execute("select test, id from test").fetchall())
    return [
        Flicker(
            *(names[row["test"]], f"{row['kind'].upper()} {row['name']}", row["commit_"]),
            *(row["passed"], row["failed"], format_time(row["last"])),
        )
        for row in sorted(rows, key=lambda row: (-row["failed"], names[row["test"]]))
    ]


def last_good(history: sqlite3.Connection, test: str, board: str = "") -> list[LastGood]:
    """Return how a test does on each board that has answered, failures first.

    Args:
        test: its name in reports, or the end of that behind a ``::``.
        board: only on boards of this name.
    """
    tests = history.execute(
        "select test, id from test where id = ? or substr(id, -length(?) - 2) = '::' || ?", (test,) * 3
    ).fetchall()
    found = next((row for row in tests if row["id"] == test), tests[0] if len(tests) == 1 else None)
    if found is None:
        several = "; ".join(row["id"] for row in tests)
        raise ConfigError(f"the history has no test {test}", f"meant is one of: {several}" if tests else "")
    boards = history.execute("select * from board where ? in ('', name) order by name, kind, serial", (board,))
    states = (test_state(history, row, found["test"], found["id"]) for row in boards.fetchall())
    said = [state for state in states if state]
    if not said:
        raise ConfigError(f"{test} has not answered" + (f" on {board}" if board else ""), "it was never run there")
    return sorted(said, key=lambda state: state.now != "failed")


_ANSWER = (
    "select outcome, commit_, started, run_id, night, message from run join outcome using (run)"
    " where board = :board and test = :test and outcome in ({}) and started {} order by started {}, run {} limit 1"
)


def test_state(history: sqlite3.Connection, board: sqlite3.Row, test: int, name: str) -> LastGood | None:
    """Return how a test does on a board; None where it has not answered.

    Args:
        test: its number in the history.
    """
    asked = {"board": board["board"], "test": test, "from": 0}
    now = history.execute(_ANSWER.format("0, 1", ">= 0", "desc", "desc"), asked).fetchone()
    if now is None:
        return None
    good = history.execute(_ANSWER.format("0", ">= 0", "desc", "desc"), asked).fetchone()
    bad = None
    if now["outcome"]:
        asked["from"] = good["started"] if good else 0
        bad = history.execute(_ANSWER.format("1", ">= :from", "asc", "asc"), asked).fetchone()
    return LastGood(
        *(name, board_label(board), board["name"], board["kind"], "failed" if now["outcome"] else "passed"),
        *((good["commit_"], format_time(good["started"])) if good else (None, None)),
        *((bad["commit_"], format_time(bad["started"]), bad["run_id"]) if bad else (None, None, None)),
        *((bad["night"], bad["message"] or "") if bad else (None, "")),
    )


def limit_crossing(
    history: sqlite3.Connection, board: str, kind: str, model: str, figure: str, most: float
) -> tuple[str | None, str | None]:
    """Return the last commit that has kept a limit, and the first since that has not.

    None where the history has no such run.
    """
    rows = history.execute(
        "select value, commit_ from series join board using (board) join figure using (series)"
        " join run using (run)"
        " where name = ? and kind = ? and model = ? and figure = ? and executor <> 'model.eval'"
        " order by figure.started desc, run desc",
        (board, kind, model, figure),
    )
    first = None
    for row in rows:
        if row["value"] <= most:
            return row["commit_"], first
        first = row["commit_"]
    return None, first
