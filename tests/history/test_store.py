# SPDX-License-Identifier: Apache-2.0
"""The file of a history: written by runs, also in parallel; killed writers; damaged, foreign and rebuilt files."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import Query, project, query, report_of, write
from utvm.history import record, store
from utvm.history.store import open_history

__all__ = ["project", "query"]

_SUITE = "def test_it():\n    pass\n"


def _runs(path: Path) -> int:
    with open_history(path) as history:
        (count,) = history.execute("select count(*) from run").fetchone()
    return int(count)


@pytest.mark.slow
def test_reports_recreate_the_same_history(project: Path) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text(_SUITE)
    file = project / "build" / "history.sqlite"
    assert inv("hil").returncode == 0
    assert _runs(file) == 1
    assert inv("nightly").returncode == 0
    assert _runs(file) == 3  # its health check, and its suites
    with open_history(file) as history:
        (label,) = history.execute("select night from run where night is not null").fetchone()
        written = history.execute("select * from run order by run_id").fetchall()
        outcomes = history.execute("select id, outcome from outcome join test using (test) order by 1").fetchall()
    assert (project / "build" / "reports" / "nightly" / label / "index.html").is_file()
    assert inv("model.eval", "digits", "--board", "host", "--samples", "3").returncode == 0
    with open_history(file) as history:
        figures = dict(history.execute("select figure, value from figure join series using (series)").fetchall())
    assert figures["samples"] == 3
    assert figures["flash_bytes"] > 0
    file.unlink()
    for _ in range(2):
        completed = inv("history.import", "build")
        assert completed.returncode == 0, completed.stderr
        with open_history(file) as history:
            assert [row[1:] for row in history.execute("select * from run order by run_id")] == [
                row[1:] for row in written
            ]
            again = history.execute("select id, outcome from outcome join test using (test) order by 1").fetchall()
            assert again == outcomes


@pytest.mark.slow
def test_project_sets_the_file(project: Path) -> None:
    (project / "utvm.yaml").write_text("boards: [{board: host}]\nhistory: ../elsewhere.sqlite\n")
    write(project, report_of(1))
    assert "1 runs added" in inv("history.import", "build").stdout
    assert _runs(project.parent / "elsewhere.sqlite") == 1


def _write_many(path: Path, begin: int, count: int) -> None:
    for number in range(begin, begin + count):
        report = report_of(1) | {"run_id": f"20261101T010000.{number:03}Z-0000"}
        assert record(path, report) == ""


def test_parallel_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, 100 * number, 40)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert _runs(path) == 160


@pytest.mark.parametrize("number", range(3))
def test_killed_writer_loses_nothing_committed(tmp_path: Path, number: int) -> None:
    path, progress = tmp_path / "history.sqlite", tmp_path / "progress"

    def write_until_killed() -> None:
        for run in range(1000):
            assert record(path, report_of(1) | {"run_id": f"20261101T010000.{run:03}Z-0000"}) == ""
            progress.write_text(str(run + 1))

    writer = multiprocessing.get_context("fork").Process(target=write_until_killed)
    writer.start()
    deadline = time.monotonic() + 30
    while not progress.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05 + 0.07 * number)
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    assert int(progress.read_text() or 0) <= _runs(path) <= 1000
    assert record(path, report_of(2)) == ""


def _foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table mine (x)")


def _newer(path: Path) -> None:
    assert record(path, report_of(1)) == ""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")


def _write_damaged(path: Path) -> None:
    for day in range(1, 20):
        assert record(path, report_of(day)) == ""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))


_UNUSABLE = {
    "damaged, or not a history": lambda path: path.write_bytes(b"this is no database, but it is long enough" * 9),
    "belongs to another program": _foreign,
    "history version 99 is newer": _newer,
    "malformed": _write_damaged,
    "it is a folder": lambda path: path.mkdir(),
}


@pytest.mark.slow
@pytest.mark.parametrize("message", _UNUSABLE)
def test_unusable_history_is_a_warning(project: Path, message: str) -> None:
    file = project / "build" / "history.sqlite"
    file.parent.mkdir()
    _UNUSABLE[message](file)
    before = file.read_bytes() if file.is_file() else b""
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text(_SUITE)
    completed = inv("hil")
    assert completed.returncode == 0, completed.stderr
    (warning,) = (line for line in completed.stdout.splitlines() if line.startswith("warning: "))
    assert message in warning
    assert completed.stdout.splitlines()[-1].startswith("PASSED")
    assert json.loads((project / "build" / "reports" / "latest" / "report.json").read_text())["verdict"] == "passed"
    assert before == (file.read_bytes() if file.is_file() else b"")
    changes = inv("history.changes")
    assert changes.returncode in (2, 3)
    assert len(changes.stderr.splitlines()) == 2, changes.stderr
    assert "Traceback" not in changes.stderr


def test_missing_or_full_history_is_reported(project: Path) -> None:
    completed = inv("history.changes", "--flaky")
    assert (completed.returncode, "no history yet" in completed.stderr) == (2, True)
    shutil.rmtree(project / "build", ignore_errors=True)
    (project / "build").mkdir()
    (project / "build" / "history.sqlite").symlink_to("/dev/full")
    assert record(project / "build" / "history.sqlite", report_of(1)).startswith("the history was not written: ")


def test_older_history_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.sqlite"
    assert record(path, report_of(1)) == ""
    migrations = store.MIGRATIONS
    monkeypatch.setattr("utvm.history.store.MIGRATIONS", (*migrations, "alter table run add column extra"))
    assert record(path, report_of(2)) == ""
    with open_history(path) as history:
        assert history.execute("select count(*), count(extra) from run").fetchone()[:] == (2, 0)
        assert history.execute("pragma user_version").fetchone()[0] == len(migrations) + 1


def test_first_version_is_migrated_to_leases(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(store.MIGRATIONS[0])
        old.executescript(f"pragma application_id = {store.APPLICATION}; pragma user_version = 1;")
        old.executescript(
            "insert into board values (1, 'host', 'process', '');"
            "insert into run values (1, 'old', 1767229200, 1, 'aa', 0, 'passed', '', null);"
        )
    report = report_of(2)
    report["environment"]["place"]["lease"] = {"place": "desk-1", "holder": "desk/me"}
    assert record(path, report) == ""
    with open_history(path) as history:
        rows = history.execute("select run_id, place, holder from run order by started").fetchall()
    assert [tuple(row) for row in rows] == [("old", None, None), (report["run_id"], "desk-1", "desk/me")]


def test_unreadable_reports_are_named(project: Path) -> None:
    write(project, report_of(1))
    (project / "build" / "reports" / "x").mkdir()
    (project / "build" / "reports" / "x" / "report.json").write_text("{")
    (project / "build" / "reports" / "x" / "nightly.json").write_text("{}")
    completed = inv("history.import", "build")
    assert completed.returncode == 0
    assert completed.stdout.count("warning: left out: ") == 2
    assert "1 runs added, 0 already there, 2 reports left out" in completed.stdout
    assert inv("history.import", "nowhere").returncode == 2


def test_another_history_is_merged_by_run(query: Query, project: Path) -> None:
    nights = [
        report_of(day, tests={"test_a": "passed", "test_b": outcome}, models={"digits": {"instructions": 1000 + day}})
        for day, outcome in ((1, "passed"), (2, "failed"), (3, "failed"))
    ]
    # Boards and tests have other ids in the second history.
    other = report_of(4, tests={"test_c": "passed"}, models={"other": {}}, board="host", kind="process")
    own, theirs, expected = project / "build" / "history.sqlite", project / "theirs.sqlite", project / "whole.sqlite"
    assert record(own, *nights[:2]) == record(theirs, other, *reversed(nights[1:])) == ""
    assert record(expected, *nights, other) == ""
    completed = inv("history.import", "theirs.sqlite")
    assert completed.stdout.endswith("2 runs added, 1 already there, 0 reports left out\n"), completed.stderr
    assert "0 runs added, 3 already there" in inv("history.import", "theirs.sqlite").stdout

    def rows(path: Path) -> list[list[tuple[object, ...]]]:
        queries = (
            "select run_id, name, kind, commit_, verdict from run join board using (board)",
            "select run_id, id, outcome, duration_ms from outcome join run using (run) join test using (test)",
            "select run_id, model, executor, figure, name, value, f.started from figure f join run using (run)"
            " join series using (series) join board b on b.board = series.board",
        )
        with contextlib.closing(sqlite3.connect(path)) as history:
            return [sorted(history.execute(query).fetchall(), key=repr) for query in queries]

    assert rows(own) == rows(expected)
    (project / "text.sqlite").write_text("no history")
    assert inv("history.import", "text.sqlite").returncode == 2
