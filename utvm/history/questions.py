# SPDX-License-Identifier: Apache-2.0
"""What else a history is asked: a figure's course, tests that flicker, and when a test was last good."""

import sqlite3
from dataclasses import dataclass

from utvm.errors import ConfigError
from utvm.history.changes import Value, spoken_board
from utvm.history.store import moment


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
            *(moment(row["started"]), row["run_id"], row["commit_"], row["model"], row["executor"]),
            *(spoken_board(row), row["figure"], row["value"]),
        )
        for row in rows
    ]


def flaky(history: sqlite3.Connection, since: int) -> list[Flicker]:
    """Return the tests that flickered since a moment, what failed most first.

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
            *(row["passed"], row["failed"], moment(row["last"])),
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
    states = (state_on(history, row, found["test"], found["id"]) for row in boards.fetchall())
    said = [state for state in states if state]
    if not said:
        raise ConfigError(f"{test} has not answered" + (f" on {board}" if board else ""), "it was never run there")
    return sorted(said, key=lambda state: state.now != "failed")


_ANSWER = (
    "select outcome, commit_, started, run_id, night, message from run join outcome using (run)"
    " where board = :board and test = :test and outcome in ({}) and started {} order by started {}, run {} limit 1"
)


def state_on(history: sqlite3.Connection, board: sqlite3.Row, test: int, name: str) -> LastGood | None:
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
        *(name, spoken_board(board), board["name"], board["kind"], "failed" if now["outcome"] else "passed"),
        *((good["commit_"], moment(good["started"])) if good else (None, None)),
        *((bad["commit_"], moment(bad["started"]), bad["run_id"]) if bad else (None, None, None)),
        *((bad["night"], bad["message"] or "") if bad else (None, "")),
    )


def crossed(
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
