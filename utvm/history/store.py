# SPDX-License-Identifier: Apache-2.0
"""Opens the file of a history, and adds runs to it: one transaction each, so that several may write at once.

SQLite's write-ahead log keeps what was committed, whoever is killed. A run is added once.
"""

import calendar
import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm.errors import ConfigError, ProvisionError, UtvmError

APPLICATION = 0x7574766D
"""SQLite's application id of our files: ``utvm`` in ASCII."""

OUTCOMES = ("passed", "failed", "skipped", "not run", "error", "infrastructure")
"""Outcomes of tests; the table holds their numbers, so that none may be moved."""

DECISIVE = ("passed", "failed", "error")
"""Verdicts of runs whose figures count."""

MEASURED = ("cycles", "ns")
"""Figures that differ from run to run though nothing has changed; all others are counted."""

# Each brings a file from the version that is its index to the next one; none is touched once it was released.
MIGRATIONS = (
    """
    create table board (
        board integer primary key, name text not null, kind text not null, serial text not null,
        unique (name, kind, serial)
    );
    create table test (test integer primary key, id text not null unique);
    create table series (
        series integer primary key, board integer not null references board, model text not null,
        executor text not null, figure text not null, unique (board, model, executor, figure)
    );
    create table run (
        run integer primary key, run_id text not null unique, started integer not null,
        board integer not null references board, commit_ text, dirty integer, verdict text not null,
        trouble text not null, night text
    );
    create table outcome (
        run integer not null references run, test integer not null references test, outcome integer not null,
        duration_ms integer, message text, primary key (run, test)
    ) without rowid;
    create table figure (
        series integer not null references series, started integer not null, run integer not null references run,
        value, primary key (series, started, run)
    ) without rowid;
    create index run_board on run (board, started);
    create index run_started on run (started);
    create index run_commit on run (commit_, board);
    create index outcome_failed on outcome (test, run) where outcome = 1;
    """,
    """
    alter table run add column probe text;
    alter table run add column place text;
    alter table run add column holder text
    """,
)


_PATIENCE = 20.0  # Seconds, for other writers.
_MOST = 500  # Characters of a message; the report has all of it.
_REBUILD = "move it away; history.import makes a new one from the reports"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Of a model in a report, what is no figure.
_NAMES = ("id", "name", "executor", "image_sha256")


def parse_time(moment: str) -> int:
    """Return a moment in UTC, as reports have it, in seconds since 1970."""
    return calendar.timegm(time.strptime(moment, _FORMAT))


def format_time(at: int) -> str:
    """Return seconds since 1970 as reports have a moment."""
    return time.strftime(_FORMAT, time.gmtime(at))


@contextlib.contextmanager
def open_history(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a history, of the present version.

    Args:
        create: make one where there is none.
    """
    if not create and not path.is_file():
        raise ConfigError(f"{path}: there is no history yet", "hil and nightly write it; history.import makes it")
    connection = None
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        connection.row_factory = sqlite3.Row
        _bring_up_to_date(connection, path)
        yield connection
    except (sqlite3.OperationalError, OSError) as error:
        hint = "may it be written, is there room, and does nobody hold it?"
        raise ProvisionError(f"{path}: the history cannot be used: {error}", hint) from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path}: is damaged, or no history: {error}", _REBUILD) from error
    finally:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: who makes it now writes all three at once.
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    (owner,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    if owner != APPLICATION and (owner or tables):
        raise ConfigError(f"{path}: is a database of another program", "let utvm.yaml name another file")
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path}: is a history of version {version}, and this utvm knows {len(MIGRATIONS)}",
            "take a newer utvm, or let utvm.yaml name another file",
        )
    if version == len(MIGRATIONS):
        return
    _log_ahead(connection)
    with _transaction(connection):
        # Another one may have done it meanwhile.
        (version,) = connection.execute("pragma user_version").fetchone()
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION}")
        connection.execute(f"pragma user_version = {len(MIGRATIONS)}")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log: for that, SQLite does not wait by itself until others let go."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("rollback")
        raise
    connection.execute("commit")


def record(path: Path, *reports: Mapping[str, Any]) -> str:
    """Add runs to a history whatever state it is in.

    Args:
        reports: what their ``report.json`` hold, in the present version.

    Returns:
        why they could not be added, in one line; nothing where they were.
    """
    try:
        with open_history(path, create=True) as history:
            for report in reports:
                add(history, report)
    except UtvmError as error:
        return " ".join(f"the history was not written: {error.message}; {error.hint}".split())
    return ""


def add(history: sqlite3.Connection, report: Mapping[str, Any]) -> bool:
    """Add a run by its report; return whether it is new.

    A turn of a nightly run has the key ``night``, too: where its report is in that of the night. It may change a
    run's verdict, as that of a health check.
    """
    with _transaction(history):
        board, source = report["board"], report["source"]
        number = _key(history, "board", name=board["id"], kind=board["kind"], serial=board["serial"] or "")
        started = parse_time(report["started"])
        added = history.execute(
            "insert or ignore into run"
            " (run_id, started, board, commit_, dirty, verdict, trouble, night, probe, place, holder)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(report["run_id"], started, number, source["commit"], source["dirty"]),
                *(report["verdict"], report["trouble"][:_MOST], report.get("night")),
                *(board.get("probe"), *_who_had_it(report)),
            ),
        )
        if not added.rowcount:
            if "night" in report:
                history.execute(
                    "update run set night = ?, verdict = ?, trouble = ? where run_id = ?",
                    (report["night"], report["verdict"], report["trouble"][:_MOST], report["run_id"]),
                )
            return False
        run = added.lastrowid
        _add_outcomes(history, run, report["tests"])
        if report["verdict"] in DECISIVE:
            _add_figures(history, run, started, number, report["models"])
    return True


def _who_had_it(report: Mapping[str, Any]) -> tuple[str | None, str | None]:
    lease = report.get("environment", {}).get("place", {}).get("lease") or {}
    return lease.get("place"), lease.get("holder")


def _add_outcomes(history: sqlite3.Connection, run: int | None, tests: Sequence[Mapping[str, Any]]) -> None:
    known = dict[str, int](history.execute("select id, test from test").fetchall())
    # Of two tests with one name, what went worse is kept.
    worst_last = sorted(tests, key=lambda test: (test["outcome"] != "passed", test["outcome"] == "failed"))
    rows = []
    for test in worst_last:
        outcome = OUTCOMES.index(test["outcome"])
        if test["id"] not in known:
            known[test["id"]] = _key(history, "test", id=test["id"])
        rows.append(
            (run, known[test["id"]], outcome, round(test["duration_s"] * 1000), test["message"][:_MOST] or None)
        )
    history.executemany("insert or replace into outcome values (?, ?, ?, ?, ?)", rows)


def _add_figures(
    history: sqlite3.Connection, run: int | None, started: int, board: int, models: Sequence[Mapping[str, Any]]
) -> None:
    seen: dict[tuple[str, str], int] = {}
    for model in models:
        same = (model["name"], model["executor"])
        seen[same] = seen.get(same, 0) + 1
        executor = model["executor"] if seen[same] == 1 else f"{model['executor']} #{seen[same]}"
        for figure, value in model.items():
            if figure in _NAMES or value is None:
                continue
            series = _key(history, "series", board=board, model=model["name"], executor=executor, figure=figure)
            plain = value if isinstance(value, int | float | str) else json.dumps(value, sort_keys=True)
            # Of a hash, what tells it from others is enough.
            short = plain[:16] if figure.endswith("_sha256") and isinstance(plain, str) else plain
            history.execute("insert into figure values (?, ?, ?, ?)", (series, started, run, short))


def _key(history: sqlite3.Connection, table: str, **columns: object) -> int:
    """Return the number of a row that is told by its columns; make it where there is none."""
    where = " and ".join(f"{column} = ?" for column in columns)
    values = tuple(columns.values())
    found = history.execute(f"select {table} from {table} where {where}", values).fetchone()
    if found is None:
        marks = ", ".join("?" * len(columns))
        made = history.execute(f"insert into {table} ({', '.join(columns)}) values ({marks})", values)
        return int(made.lastrowid or 0)
    return int(found[0])
