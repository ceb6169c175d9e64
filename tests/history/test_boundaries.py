# SPDX-License-Identifier: Apache-2.0
"""A history at the boundaries of its windows and lists, queried in this process."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.history.reports import BAD, GOOD, WORSE, report_of
from tests.pages.samples import run_that_passed
from utvm.errors import ConfigError, ProvisionError
from utvm.hil import limits
from utvm.hil.limits import iter_reports
from utvm.hil.report import write_report
from utvm.history import bisect_step, record
from utvm.history.bisect_step import judge
from utvm.history.changes import Change, changes, last_good, limit_crossing, trend
from utvm.history.exports import EXPORTS, chart_pages, write_pages
from utvm.history.store import add, format_time, open_history, parse_time
from utvm.paths import work

_NEWEST = parse_time("2026-11-25T12:00:00Z")
_DAY = 24 * 60 * 60


def _run(at: int, commit: str = GOOD, **options: Any) -> dict[str, Any]:
    """The content of report.json for a run that started at this second."""
    report = report_of(1, commit, **options)
    return {**report, "started": format_time(at), "run_id": f"{at}-{report['board']['id']}-{report['board']['kind']}"}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A new history, for :func:`_add`."""
    with open_history(tmp_path / "history.sqlite", create=True) as connection:
        yield connection


def _add(history: sqlite3.Connection, *reports: dict[str, Any]) -> sqlite3.Connection:
    path = Path(history.execute("pragma database_list").fetchone()["file"])
    assert record(path, *reports) == ""
    return history


def _counts(at: int, board: str = "stm32f746", **figures: int) -> dict[str, Any]:
    report = _run(at, board=board, models={"m": {}})
    (model,) = report["models"]
    names = {name: model[name] for name in ("id", "name", "executor", "outputs_sha256", "image_sha256")}
    return {**report, "models": [{**names, **figures}]}


def test_trend_line_has_first_changed_and_last_values(history: sqlite3.Connection) -> None:
    first = _NEWEST - 90 * _DAY
    values = {first - 1: 9, first: 1, first + 5: 1, first + 9: 2, first + 10: 2, _NEWEST - 7: 2, _NEWEST: 2}
    _add(history, *(_counts(at, ram_bytes=value, samples=3) for at, value in values.items()))
    (page,) = chart_pages(history, _NEWEST - 90 * _DAY)
    ram, samples = page.charts
    assert [(line.name, line.times, line.values) for line in (*ram.lines, *samples.lines)] == [
        ("VIRTUAL stm32f746, host-driven", (first, first + 9, _NEWEST), (1, 2, 2)),
        ("VIRTUAL stm32f746, host-driven", (first, _NEWEST), (3, 3)),
    ]
    assert (ram.summary, ram.left_out) == ("ram_bytes on 1 boards, between 1 and 2", 0)
    assert list(chart_pages(history, _NEWEST + _DAY)) == []


def test_page_has_the_charts_that_change_most(history: sqlite3.Connection) -> None:
    figures = [f"figure_{number:02}" for number in range(13)]
    boards = [f"board-{number}" for number in range(9)]
    for number in range(3):
        # The last figure changes twice, on the last board only.
        for board in boards:
            last = number if board == boards[-1] else 0
            _add(history, _counts(_NEWEST + number, board, **{**dict.fromkeys(figures, 5), figures[-1]: last}))
    (page,) = chart_pages(history, _NEWEST + 2 - 90 * _DAY)
    assert [chart.figure for chart in page.charts] == [figures[-1], *figures[:11]]
    assert [line.name.split()[1] for line in page.charts[0].lines] == [f"{boards[-1]},"] + [
        f"{board}," for board in boards[:7]
    ]
    assert page.charts[0].left_out == 1
    assert page.charts[0].lines[0].steps == 2


def test_pages_draw_steps_and_a_months_tests(history: sqlite3.Connection, tmp_path: Path) -> None:
    month = _NEWEST - 30 * _DAY
    infrastructure = {"test_a": "infrastructure"}
    runs = {month - 1: 7, month: 4, month + 3 * _DAY: 4, month + 15 * _DAY: 8, _NEWEST: 6}
    _add(history, *(_counts(at, ram_bytes=value, samples=3) for at, value in runs.items()))
    _add(history, _run(month - 2, tests={"test_old": "failed"}), _run(month + 1, tests={"test_new": "failed"}))
    _add(history, _run(month - 3, tests=infrastructure), _run(_NEWEST - 1, tests=infrastructure))
    assert write_pages(history, tmp_path / "pages", tmp_path) == 4
    board = next((tmp_path / "pages").glob("board-*.html")).read_text()
    assert re.findall(r'class="course" d="([^"]+)"', board) == ["M0 27.0H110.0V3.0H220.0V15.0H220", "M0 15.0H220"]
    assert re.findall(r'aria-label="(\w+) of [^:]+: (\d+) steps', board) == [("ram_bytes", "2"), ("samples", "0")]
    assert re.findall(r'data-label="now">(\d+)<', board) == ["6", "3"]
    index = (tmp_path / "pages" / "index.html").read_text()
    assert "test_new" in index
    assert "test_old" not in index
    assert "83.33 %" in index  # 5 of 6 runs
    days = re.findall(r"2026-\d\d-\d\d", next(line for line in index.splitlines() if "<svg" in line or "rect" in line))
    assert days == [] or days[0] == "2026-10-27"
    assert "left out" not in index


def test_long_lists_of_pages_are_shortened(history: sqlite3.Connection, tmp_path: Path) -> None:
    tests = {f"test_{number:03}": "failed" for number in range(103)}
    _add(history, _run(_NEWEST - _DAY, tests=dict.fromkeys(tests, "passed")), _run(_NEWEST, BAD, tests=tests))
    for number in range(101):
        _add(history, _run(_NEWEST + 1, board=f"board-{number:03}"))
    write_pages(history, tmp_path / "pages", tmp_path)
    index = (tmp_path / "pages" / "index.html").read_text()
    assert re.findall(r"(\d+) more are left out", index) == ["3", "2", "3"]
    assert len(re.findall(r'href="test-\d+.html"', index)) == 100


def test_single_run_has_a_page_and_empty_history_none(history: sqlite3.Connection, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the history is empty"):
        write_pages(history, tmp_path / "pages", tmp_path)
    assert EXPORTS["metrics"](history).count("\n") == 6
    assert EXPORTS["summary"](history) == "## Boards: none\n"
    _add(history, _counts(_NEWEST, ram_bytes=4), {**_counts(_NEWEST, ram_bytes=5), "run_id": "again"})
    assert write_pages(history, tmp_path / "pages", tmp_path) == 3
    board = (tmp_path / "pages" / "board-1.html").read_text()
    assert 'd="M0 27.0H0.0V3.0H220"' in board
    _add(history, _counts(_NEWEST + 1, ram_bytes=5))
    write_pages(history, tmp_path / "pages", tmp_path)
    assert 'd="M0 27.0H0.0V3.0H220"' in (tmp_path / "pages" / "board-1.html").read_text()
    _add(history, _counts(_NEWEST + 1, ram_bytes=4, board="next"), _counts(_NEWEST + 2, ram_bytes=3, board="next"))
    write_pages(history, tmp_path / "pages", tmp_path)
    assert 'd="M0 3.0H220.0V27.0H220"' in (tmp_path / "pages" / "board-2.html").read_text()


def test_page_is_rewritten_only_if_changed(history: sqlite3.Connection, tmp_path: Path) -> None:
    """A board whose runs were all interrupted is not down."""
    _add(history, {**_run(_NEWEST), "verdict": "interrupted"})
    write_pages(history, tmp_path, tmp_path)
    page = tmp_path / "index.html"
    text, written = page.read_text(), page.stat().st_mtime_ns
    assert 'data-label="up">100.00 %<' in text
    write_pages(history, tmp_path, tmp_path)
    assert page.stat().st_mtime_ns == written
    page.write_text("old")
    write_pages(history, tmp_path, tmp_path)
    assert page.read_text() == text


def test_history_works_with_times_of_1970(history: sqlite3.Connection) -> None:
    _add(history, _run(0, tests={"test_a": "passed"}), _run(1, BAD, tests={"test_a": "failed"}))
    (state,) = last_good(history, "test_a")
    assert (state.now, state.good, state.bad) == ("failed", GOOD, BAD)


def test_metrics_cover_thirty_days_and_badges_fit(history: sqlite3.Connection) -> None:
    month = _NEWEST - 30 * _DAY
    _add(history, _run(_NEWEST), _run(month, board="edge"), _run(month - 1, board="gone"))
    metrics = EXPORTS["metrics"](history)
    assert 'name="edge"' in metrics
    assert 'name="gone"' not in metrics
    badge = EXPORTS["badge"](history)
    assert 'width="106"' in badge and '<rect x="52" width="54"' in badge
    assert "#1a7f4b" in badge


def test_summary_has_the_first_line_of_a_failure(history: sqlite3.Connection) -> None:
    report = _run(_NEWEST, tests={"test_a": "failed"})
    report["tests"][0]["message"] = "first\nsecond"
    assert "| it::test_a | VIRTUAL stm32f746 | first |" in EXPORTS["summary"](_add(history, report))


@pytest.mark.parametrize(
    ("was", "now", "text"),
    [(1000, 1001, "+1 (+0.10 %)"), (0, 2, "+2"), (0.5, 0.25, "-0.25 (-50.00 %)"), ("a", 1, ""), (1, "b", "")],
)
def test_difference_is_in_numbers_and_percent(was: float | str, now: float | str, text: str) -> None:
    assert Change("f", "m", "b", was, now, None, None, "").difference == text


def _cycles(at: int, value: int, commit: str = GOOD, **options: Any) -> dict[str, Any]:
    return _run(at, commit, kind="physical", models={"m": {"cycles": value}}, **options)


def test_measured_change_needs_five_runs_on_each_side(history: sqlite3.Connection) -> None:
    for number in range(5):
        _add(history, _cycles(_NEWEST + number, 1000 + number))
        _add(history, _cycles(_NEWEST + 100 + number, 2000 + number, BAD if number else WORSE))
        # Unchanged figures and differences by chance are not reported.
        _add(history, *(_cycles(_NEWEST + at + number, 7, board="steady") for at in (0, 100)))
    (change,) = changes(history, _NEWEST + 100)
    assert (change.was, change.now, change.last, change.first) == (1002, 2002, GOOD, WORSE)
    assert change.sure == pytest.approx(1 - 2 / 252, abs=1e-5)
    assert change.at == format_time(_NEWEST + 100)
    # One later run is compared together with four earlier ones; without later runs there is no change.
    assert [later.now for later in changes(history, _NEWEST + 104)] == [2002]
    assert changes(history, _NEWEST + 105) == []
    assert changes(history, _NEWEST + 4) == []


def test_ten_nearest_measured_runs_are_compared(history: sqlite3.Connection) -> None:
    _add(history, *(_cycles(_NEWEST + n, 9000 if n < 10 else 1000 + n) for n in range(20)))
    _add(
        history, *(_cycles(_NEWEST + 100 + number, 1900 if number < 2 else 2000 + number, BAD) for number in range(12))
    )
    (change,) = changes(history, _NEWEST + 100)
    assert (change.was, change.now, change.at) == (1016.5, 2006.5, format_time(_NEWEST + 102))
    assert change.sure == pytest.approx(1 - 2 / 184756, abs=1e-5)


def test_change_of_a_test_is_its_last_one(history: sqlite3.Connection) -> None:
    outcomes = {1: ("passed", GOOD), 2: ("failed", BAD), 3: ("passed", WORSE), 4: ("failed", BAD), 5: ("failed", GOOD)}
    _add(
        history, *(_run(_NEWEST + at, commit, tests={"test_a": outcome}) for at, (outcome, commit) in outcomes.items())
    )
    (change,) = changes(history, _NEWEST + 2)
    assert (change.was, change.now, change.last, change.first) == ("passed", "failed", WORSE, BAD)
    assert change.at == format_time(_NEWEST + 4)
    assert changes(history, _NEWEST + 4)[0].first == BAD
    # A single result is no change, and neither is a return to the first result.
    assert changes(history, _NEWEST + 1) != []
    assert changes(history, _NEWEST + 3) == []
    assert changes(history, _NEWEST + 5) == []


def test_failure_counts_for_thirty_days(history: sqlite3.Connection) -> None:
    failed, passed = {"test_a": "failed"}, {"test_a": "passed"}
    _add(history, _run(_NEWEST - 30 * _DAY, tests=failed), _run(_NEWEST, BAD, tests=passed))
    _add(history, _run(_NEWEST - 30 * _DAY - 1, board="older", tests=failed))
    _add(history, _run(_NEWEST, BAD, board="older", tests=passed))
    assert [(change.now, change.board) for change in changes(history, _NEWEST)] == [("passed", "VIRTUAL stm32f746")]


def test_test_suffix_selects_a_unique_test(history: sqlite3.Connection) -> None:
    _add(history, _run(_NEWEST, tests={"test_a": "passed", "test_b": "failed", "Test::test_a": "passed"}))
    assert [state.now for state in last_good(history, "it::test_a")] == ["passed"]
    (bad,) = last_good(history, "test_b")
    assert (bad.good, bad.bad, bad.bad_at, bad.now) == (None, GOOD, format_time(_NEWEST), "failed")
    with pytest.raises(ConfigError, match="no test test_a") as caught:
        last_good(history, "test_a")
    assert caught.value.hint == "choose one of: it::test_a; it::Test::test_a"
    for name in ("b", "test_x", "_b"):
        with pytest.raises(ConfigError, match=f"no test {name}") as caught:
            last_good(history, name)
        assert caught.value.hint == ""
    with pytest.raises(ConfigError, match="test_b has no result on host\n"):
        last_good(history, "test_b", "host")
    with pytest.raises(ConfigError, match="no figures of x\n"):
        trend(history, "x", "ram_bytes", "host")
    with pytest.raises(ConfigError, match="no figures of x\n"):
        trend(history, "x")


def test_equal_names_are_separate_and_the_worse_counts(history: sqlite3.Connection) -> None:
    report = _counts(_NEWEST, ram_bytes=1)
    model = report["models"][0]
    report["models"] = [model, {**model, "ram_bytes": 2}, {**model, "sizes": {"b": 1, "a": 2}, "ram_bytes": None}]
    (test,) = report["tests"]
    report["tests"] = [
        {**test, "outcome": outcome, "message": outcome, "duration_s": 1.2345}
        for outcome in ("failed", "infrastructure", "passed")
    ]
    _add(history, {**report, "verdict": "failed"}, {**report, "night": "n", "verdict": "infrastructure"})
    figures = "select executor, value from figure join series using (series) where figure in ('ram_bytes', 'sizes')"
    assert [tuple(row) for row in history.execute(f"{figures} order by executor")] == [
        ("host-driven", 1),
        ("host-driven #2", 2),
        ("host-driven #3", '{"a": 2, "b": 1}'),
    ]
    assert [tuple(row) for row in history.execute("select outcome, duration_ms, message from outcome")] == [
        (1, 1234, "failed")
    ]
    # The nightly report of the same run has another verdict, which counts.
    assert [tuple(row) for row in history.execute("select verdict, night from run")] == [("infrastructure", "n")]


def test_missing_or_unusable_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), open_history(tmp_path / "none.sqlite"):
        pass
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(ConfigError, match=r"bad\.sqlite"), open_history(tmp_path / "bad.sqlite", create=True):
        pass
    with pytest.raises((ConfigError, ProvisionError)), open_history(tmp_path / "no" / ".." / "no", create=True):
        pass


def test_failed_addition_leaves_nothing(history: sqlite3.Connection) -> None:
    broken = _run(_NEWEST, models={"m": {}})
    broken["models"][0]["ram_bytes"] = 1 << 70
    path = Path(history.execute("pragma database_list").fetchone()["file"])
    with open_history(path) as connection:
        with pytest.raises(OverflowError):
            add(connection, broken)
        assert not connection.in_transaction
    assert history.execute("select count(*) from run").fetchone()[0] == 0
    assert history.execute("pragma journal_mode").fetchone()[0] == "wal"


def test_commits_around_a_crossed_limit(history: sqlite3.Connection) -> None:
    _add(history, *(_run(_NEWEST + at, (GOOD, BAD, WORSE)[at], models={"m": {"ram_bytes": at}}) for at in range(3)))
    limits = {most: limit_crossing(history, "stm32f746", "virtual", "m", "ram_bytes", most) for most in (-1, 0, 1, 2)}
    assert limits == {-1: (None, GOOD), 0: (GOOD, BAD), 1: (BAD, WORSE), 2: (WORSE, None)}
    assert limit_crossing(history, "stm32f746", "virtual", "x", "ram_bytes", 9) == (None, None)


def test_bisect_step_ends_like_the_test(tmp_path: Path) -> None:
    tests = '{"models": [], "tests": [{"id": "t", "outcome": "passed"}, {"id": "u", "outcome": "failed"}]}'
    (tmp_path / "report.json").write_text(tests)
    script = 'mkdir "$0/$1" && cp "$0/report.json" "$0/$1" && ln -sfn "$1" "$0/latest"; exit 1'
    command = [sys.executable, bisect_step.__file__, tmp_path]
    for name, code in (("t", 0), ("u", 1), ("v", 125)):
        run = [*command, name, "", "null", "sh", "-c", script, tmp_path, f"run-{name}"]
        assert subprocess.run(run, check=False).returncode == code
    # Without a new report there is no result; the old report does not count.
    silent = [*command, "t", "", "null", "sh", "-c", "exit 0"]
    assert subprocess.run(silent, check=False).returncode == 125


def test_bisect_step_judges_a_figure_of_zero(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"models": [{"name": "m", "f": 0}, {"name": "m", "f": 1}], "tests": []}')
    assert [judge(0, report, "m", "f", good) for good in ("0", "1")] == [0, 1]
    report.write_text('{"models": [], "tests": [{"id": "t", "outcome": "failed"}, {"id": "t", "outcome": "passed"}]}')
    assert judge(1, report, "t", "", "null") == 1
    assert judge(-11, report, "t", "", "null") == 125
    report.write_text("{")
    assert judge(0, report, "t", "", "null") == 125


def test_bisect_step_compares_a_figure(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert judge(0, report, "digits", "flash_bytes", "10") == 125
    model = {"name": "digits", "flash_bytes": 10, "cycles": None, "outputs_sha256": "abcdef"}
    tests = [{"id": "a::test_x", "outcome": "passed"}, {"id": "a::test_xy", "outcome": "failed"}]
    report.write_text(json.dumps({"models": [model], "tests": tests}))
    assert judge(1, report, "digits", "flash_bytes", "10") == 0
    assert judge(0, report, "digits", "flash_bytes", "9") == 1
    assert judge(0, report, "digits", "outputs_sha256", '"abcd"') == 0
    assert judge(0, report, "digits", "cycles", "9") == judge(0, report, "other", "flash_bytes", "9") == 125
    assert [judge(code, report, "digits", "flash_bytes", "10") for code in (2, 3)] == [125, 125]
    # Another failed test in the same run does not count.
    cases = [("a::test_x", 1), ("a::test_xy", 1), ("a::test_z", 1), ("a::test_x", 3)]
    assert [judge(code, report, name, "", "null") for name, code in cases] == [0, 1, 125, 125]


def test_bisect_step_judges_the_first_run_of_a_model(tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    def step(*values: int | None) -> int:
        models = [{"name": "m", "flash_bytes": value} for value in values]
        report.write_text(json.dumps({"tests": [], "models": models}))
        return judge(0, report, "m", "flash_bytes", "5")

    assert [step(5, None), step(5, 6), step(6, 5), step(None, 5), step()] == [0, 0, 1, 125, 125]


def test_boards_on_which_a_test_fails_come_first(history: sqlite3.Connection) -> None:
    outcomes = {"host": "passed", "microbit": "failed", "nucleo": "passed"}
    for board, outcome in outcomes.items():
        _add(history, _run(_NEWEST, board=board, tests={"test_a": outcome}))
    assert [(state.name, state.now) for state in last_good(history, "test_a")] == [
        *(("microbit", "failed"), ("host", "passed"), ("nucleo", "passed"))
    ]


def test_new_history_is_a_marked_file_in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "b" / "history.sqlite"
    with open_history(path, create=True) as history:
        assert history.execute("pragma application_id").fetchone()[0].to_bytes(4, "big") == b"utvm"
    # The history of another user can be read.
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with open_history(path):
        pass


def test_open_waits_for_the_creation_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin exclusive")
    release = threading.Timer(0.3, other.execute, ["rollback"])
    release.start()
    with open_history(path, create=True) as history:
        assert history.execute("select count(*) from run").fetchone()[0] == 0
    release.join()
    other.close()


def test_unwritable_pages_and_damaged_reports_are_named(history: sqlite3.Connection, tmp_path: Path) -> None:
    _add(history, _run(_NEWEST))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the pages"):
        write_pages(history, tmp_path / "file" / "pages", tmp_path)
    night = tmp_path / "nights" / "n"
    night.mkdir(parents=True)
    (night / "nightly.json").write_text("{}")
    (problem,) = iter_reports(tmp_path / "nights")
    assert isinstance(problem, str) and "is not a nightly report" in problem


def test_reports_of_another_location_are_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    monkeypatch.setattr(
        limits, "remember", lambda _, *reports: added.extend(report["run_id"] for report in reports) or ""
    )
    folder = write_report(run_that_passed(), tmp_path)
    assert limits.remember_new(tmp_path, ()) == ""
    assert added == [folder.name]
    assert limits.remember_new(tmp_path, [folder / "report.json"]) == ""
    assert added == [folder.name]


def test_runs_outside_a_project_and_its_reports_are_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.sqlite"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limits, "history_file", lambda: path)
    run = _run(_NEWEST)
    assert (limits.remember(tmp_path / "reports", run), path.exists()) == ("", False)
    monkeypatch.setattr(limits, "current_kind", lambda: "docker")
    assert (limits.remember(work() / "reports", run), path.exists()) == ("", False)
    monkeypatch.setattr(limits, "current_kind", lambda: "host")
    assert (limits.remember(work() / "reports", run), path.exists()) == ("", True)


def test_page_of_a_test_lists_failing_boards_first(history: sqlite3.Connection, tmp_path: Path) -> None:
    for board, outcome in (("host", "passed"), ("microbit", "failed"), ("nucleo", "passed")):
        _add(history, _run(_NEWEST - 1, board=board, tests={"test_a": "failed"}))
        _add(history, _run(_NEWEST, board=board, tests={"test_a": outcome}))
    write_pages(history, tmp_path / "pages", tmp_path)
    text = (tmp_path / "pages" / "test-1.html").read_text().partition("<h2>Boards</h2>")[2]
    positions = [text.index(f"VIRTUAL {board}") for board in ("microbit", "host", "nucleo")]
    assert positions == sorted(positions)


def test_page_of_a_board_lists_its_last_thirty_runs(history: sqlite3.Connection, tmp_path: Path) -> None:
    _add(history, *(_run(_NEWEST - 60 * minute) for minute in range(31)))
    write_pages(history, tmp_path / "pages", tmp_path)
    text = (tmp_path / "pages" / "board-1.html").read_text()
    times = set(re.findall(r"2026-11-25 1\d:\d\d:00 UTC", text))
    assert len(times) == 30
    assert format_time(_NEWEST)[11:16] in text and format_time(_NEWEST - 60 * 30)[11:16] not in text
