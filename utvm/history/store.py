# SPDX-License-Identifier: Apache-2.0
"""SQLite file of a history: opening it, and adding runs.

Each run is one transaction, so processes may write concurrently; the write-ahead log keeps commits if a process is
killed. A run is added once.
"""

import calendar
import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm.base.storage.config import read_yaml
from utvm.base.storage.files import check_regular
from utvm.base.text.quoting import encodable_tree
from utvm.errors import ConfigError, ProvisionError, UtvmError

APPLICATION = 0x7574766D
"""SQLite application id of history files: ``utvm`` in ASCII."""

OUTCOMES = ("passed", "failed", "skipped", "not run", "error", "infrastructure")
"""Outcomes of tests. The database stores their indices: append only."""

DECISIVE = ("passed", "failed", "error")
"""Verdicts of runs whose figures are stored."""

MEASURED = ("cycles", "ns")
"""Figures that vary from run to run; all others are counted exactly."""

_SQL = Path(__file__).with_name("sql")
QUERIES: Mapping[str, str] = read_yaml(_SQL / "queries.yaml")[0]
"""Queries by name."""
# Migration N upgrades a file of version N. A released migration never changes.
MIGRATIONS = tuple(path.read_text() for path in sorted(_SQL.glob("[0-9]*.sql"), key=lambda path: int(path.stem)))

_LOCK_SECONDS = 20.0
_FILES = ("", "-journal", "-wal", "-shm")  # Files that SQLite opens: sqlite.org/tempfiles.html.
_MESSAGE_LENGTH = 500  # The report has the whole message.
_REBUILD = "move the file away and run history.import to rebuild it from the reports"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Keys of a model in a report that are not figures.
_NAMES = ("id", "name", "executor", "image_sha256")


def parse_time(moment: str) -> int:
    return calendar.timegm(time.strptime(moment, _FORMAT))


def format_time(at: int) -> str:
    return time.strftime(_FORMAT, time.gmtime(at))


class _EscapingConnection(sqlite3.Connection):
    """Escapes text that is not UTF-8, such as a file name on a command line."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, encodable_tree(parameters))


@contextlib.contextmanager
def open_history(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a history and upgrade it to the current version; ``create`` creates a missing one."""
    if not create and not path.is_file():
        raise ConfigError(f"{path}: no history yet", "run hil or nightly, or import reports with history.import")
    connection = None
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        for suffix in _FILES:
            check_regular(f"{path}{suffix}", shared=True)
        connection = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None, factory=_EscapingConnection)
        connection.row_factory = sqlite3.Row
        _upgrade(connection, path)
        yield connection
    except (sqlite3.OperationalError, OSError) as error:
        if "decode" in str(error):  # sqlite3's message for text that is not UTF-8
            raise ConfigError(f"{path}: damaged, or not a history: {error}", _REBUILD) from error
        why = getattr(error, "strerror", error)
        hint = "check permissions, free space, and that no other program locks it"
        raise ProvisionError(f"{path}: cannot use the history: {why}", hint) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: damaged, or not a history: {error}", _REBUILD) from error
    finally:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: a concurrent creator commits all three at once.
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    (owner,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    if owner != APPLICATION and (owner or tables):
        raise ConfigError(f"{path}: belongs to another program", "name another file in utvm.yaml")
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path}: history version {version} is newer than version {len(MIGRATIONS)} of this utvm",
            "update utvm, or name another file in utvm.yaml",
        )
    if version == len(MIGRATIONS):
        return
    _enable_write_ahead_log(connection)
    with _transaction(connection):
        # Another process may have upgraded the file meanwhile.
        (version,) = connection.execute("pragma user_version").fetchone()
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION}")
        connection.execute(f"pragma user_version = {len(MIGRATIONS)}")


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    # SQLite's own timeout does not cover this pragma.
    deadline = time.monotonic() + _LOCK_SECONDS
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
    """Add runs from the contents of their ``report.json``; return a one-line error, or ``""``."""
    try:
        with open_history(path, create=True) as history:
            for report in reports:
                add(history, report)
    except UtvmError as error:
        return " ".join(f"the history was not written: {error.message}; {error.hint}".split())
    return ""


def add(history: sqlite3.Connection, report: Mapping[str, Any]) -> bool:
    """Add a run by its report; return True if new.

    The key ``night`` is a run's location in the nightly report. A nightly run may change the verdict of a stored
    run.
    """
    report = encodable_tree(report)
    with _transaction(history):
        board, source = report["board"], report["source"]
        number = _key(history, "board", name=board["id"], kind=board["kind"], serial=board["serial"] or "")
        started = parse_time(report["started"])
        lease = report.get("environment", {}).get("place", {}).get("lease") or {}
        added = history.execute(
            QUERIES["add_run"],
            (
                report["run_id"],
                started,
                number,
                source["commit"],
                source["dirty"],
                report["verdict"],
                report["trouble"][:_MESSAGE_LENGTH],
                report.get("night"),
                board.get("probe"),
                lease.get("place"),
                lease.get("holder"),
            ),
        )
        if not added.rowcount:
            if "night" in report:
                history.execute(
                    "update run set night = ?, verdict = ?, trouble = ? where run_id = ?",
                    (report["night"], report["verdict"], report["trouble"][:_MESSAGE_LENGTH], report["run_id"]),
                )
            return False
        run = added.lastrowid
        _add_outcomes(history, run, report["tests"])
        if report["verdict"] in DECISIVE:
            _add_figures(history, run, started, number, report["models"])
    return True


def merge(history: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """Add the runs of another history file; return the numbers of new runs and of runs already there."""
    with open_history(path) as other:  # checks and upgrades it
        (runs,) = other.execute("select count(*) from run").fetchone()
    history.execute("attach ? as other", (str(path),))
    with _transaction(history):
        for statement in (_SQL / "merge.sql").read_text().split(";")[:-1]:
            history.execute(statement)
        (added,) = history.execute("select count(*) from added").fetchone()
    return added, runs - added


def prune(history: sqlite3.Connection, before: int) -> int:
    """Remove runs that began before a time, free their disk space, and return their number."""
    with _transaction(history):
        history.execute("delete from outcome where run in (select run from run where started < ?)", (before,))
        history.execute("delete from figure where run in (select run from run where started < ?)", (before,))
        removed = history.execute("delete from run where started < ?", (before,)).rowcount
        history.execute("delete from series where series not in (select series from figure)")
        history.execute("delete from test where test not in (select test from outcome)")
        history.execute("delete from board where board not in (select board from run)")
    history.execute("vacuum")
    history.execute("pragma wal_checkpoint(truncate)")
    return removed


def _add_outcomes(history: sqlite3.Connection, run: int | None, tests: Sequence[Mapping[str, Any]]) -> None:
    known = dict[str, int](history.execute("select id, test from test").fetchall())
    # If two tests share a name, the worse outcome wins.
    worst_last = sorted(tests, key=lambda test: (test["outcome"] != "passed", test["outcome"] == "failed"))
    for test in worst_last:
        if test["id"] not in known:
            known[test["id"]] = _key(history, "test", id=test["id"])
    history.executemany(
        "insert or replace into outcome values (?, ?, ?, ?, ?)",
        [
            (
                run,
                known[test["id"]],
                OUTCOMES.index(test["outcome"]),
                round(test["duration_s"] * 1000),
                test["message"][:_MESSAGE_LENGTH] or None,
            )
            for test in worst_last
        ],
    )


def _add_figures(
    history: sqlite3.Connection, run: int | None, started: int, board: int, models: Sequence[Mapping[str, Any]]
) -> None:
    repeats = Counter[tuple[str, str]]()
    for model in models:
        series = (model["name"], model["executor"])
        repeats[series] += 1
        executor = model["executor"] if repeats[series] == 1 else f"{model['executor']} #{repeats[series]}"
        for figure, value in model.items():
            if figure in _NAMES or value is None:
                continue
            key = _key(history, "series", board=board, model=model["name"], executor=executor, figure=figure)
            content = value if isinstance(value, int | float | str) else json.dumps(value, sort_keys=True)
            # Sixteen digits distinguish hashes.
            short = content[:16] if figure.endswith("_sha256") and isinstance(content, str) else content
            history.execute("insert into figure values (?, ?, ?, ?)", (key, started, run, short))


def _key(history: sqlite3.Connection, table: str, **columns: object) -> int:
    condition = " and ".join(f"{column} = ?" for column in columns)
    values = tuple(columns.values())
    row = history.execute(f"select {table} from {table} where {condition}", values).fetchone()
    if row is not None:
        return int(row[table])
    marks = ", ".join("?" * len(columns))
    cursor = history.execute(f"insert into {table} ({', '.join(columns)}) values ({marks})", values)
    return int(cursor.lastrowid or 0)
