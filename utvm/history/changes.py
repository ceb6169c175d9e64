# SPDX-License-Identifier: Apache-2.0
"""What has changed since when: figures that are counted, figures that are measured, and tests."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from utvm.history.schema import MEASURED
from utvm.history.store import moment

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
    """Return what is otherwise than it was before a moment, in seconds since 1970; the latest change first.

    Where there was nothing before, the first run since then is what the newest is compared with.
    """
    found = [*_counted(history, since), *_measured(history, since), *_tests(history, since)]
    return sorted(found, key=lambda change: (change.what != "test", change.at), reverse=False)


def spoken_board(row: Row) -> str:
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
    at = moment(first["started"])
    return Change(series["figure"], name, spoken_board(series), was, now, last, first["commit_"], at, sure)


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
        if answers[0]["outcome"] != answers[-1]["outcome"]:
            turn = max(i for i in range(1, len(answers)) if answers[i]["outcome"] != answers[i - 1]["outcome"])
            words = ["failed" if answers[i]["outcome"] else "passed" for i in (0, -1)]
            first = answers[turn]
            yield Change(
                *("test", row["id"], spoken_board(row), words[0], words[1]),
                *(answers[turn - 1]["commit_"], first["commit_"], moment(first["started"])),
            )


def _answers(history: sqlite3.Connection, board: int, test: int, since: int) -> Iterator[Row]:
    """Go through a test's answers on a board: the last one before a moment, and all since."""
    asked = (
        "select outcome, commit_, started from run join outcome using (run)"
        " where board = ? and test = ? and outcome in (0, 1) and started {} ? order by started {}, run {}"
    )
    yield from history.execute(asked.format("<", "desc", "desc limit 1"), (board, test, since))
    yield from history.execute(asked.format(">=", "asc", "asc"), (board, test, since))
