# SPDX-License-Identifier: Apache-2.0
"""``history.changes`` and ``history.trend``."""

import re
import sqlite3
import time
from dataclasses import asdict

from utvm.cli.output import OUT
from utvm.errors import ConfigError
from utvm.hil import limits, project
from utvm.history.changes import Change, changes, last_good, newest_night, trend
from utvm.history.changes import flaky as flaky_tests
from utvm.history.store import format_time, open_history, parse_time
from utvm.history.values import Value, format_value
from utvm.pages import readable_time

_MONTH = 30 * 86400
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def show_changes(since: str, flaky: bool, accept: bool) -> None:
    """Print changes, or flaky tests; with ``accept``, the newest figures become the baseline."""
    if flaky:
        _show_flaky(since)
        return
    with open_history(project.history_file()) as history:
        start = start_of(history, since)
        changed = changes(history, start)
    if accept:
        OUT.print(f"the baseline is written: {limits.accept_figures()}")
    OUT.results({"since": format_time(start), "changes": changed})
    if changed:
        OUT.table(
            *("what", "of", "board", "was", "is", "commits"),
            rows=[
                (
                    *(change.what, change.name, change.board, *_values(change)),
                    "..".join((commit or "none")[:10] for commit in (change.last, change.first)),
                )
                for change in changed
            ],
        )
    OUT.print(f"{len(changed)} changes since {readable_time(format_time(start))}")


def show_trend(what: str, board: str) -> None:
    """Print a model's figures run by run, or the one after a colon; of a test, when it last passed."""
    if "::" in what or what.startswith("test_"):
        _show_last_good(what, board)
        return
    name, _, figure = what.partition(":")
    with open_history(project.history_file()) as history:
        points = trend(history, name, figure, board)
    OUT.results({"points": points})
    before: dict[tuple[str, str, str], Value] = {}
    rows = []
    for point in points:
        series = (point.figure, point.executor, point.board)
        if before.get(series) != point.value:
            key = (point.figure, f"{point.model} ({point.executor})", point.board)
            when = ((point.commit or "none")[:10], readable_time(point.started))
            rows.append((*key, *when, format_value(point.figure, point.value)))
        before[series] = point.value
    OUT.table("figure", "of", "board", "commit", "since", "value", rows=rows)
    OUT.print(f"{len(points)} values; only changes are shown, --json has all")


def _show_flaky(since: str) -> None:
    with open_history(project.history_file()) as history:
        start = start_of(history, since) if since else int(time.time()) - _MONTH
        flaky = flaky_tests(history, start)
    OUT.results(
        {"since": format_time(start), "flaky": [{**asdict(test), "probability": test.probability} for test in flaky]}
    )
    if flaky:
        OUT.table(
            *("test", "board", "commit", ">passed", ">failed", ">flaky", "failed in"),
            rows=[
                (
                    *(test.test, test.board, test.commit[:10], test.passed, test.failed),
                    *(f"{100 * test.probability:.1f} %", "\n".join(test.runs[-3:])),
                )
                for test in flaky
            ],
        )
    OUT.print(f"{len(flaky)} flaky since {readable_time(format_time(start))}")


def _show_last_good(test: str, board: str) -> None:
    with open_history(project.history_file()) as history:
        states = last_good(history, test, board)
    OUT.table(
        *("board", "now", "last passed", "commit", "first failed", "commit"),
        rows=[
            (
                *(state.board, state.now),
                *(readable_time(state.good_at or "never"), (state.good or "")[:10]),
                *(readable_time(state.bad_at or ""), (state.bad or "")[:10]),
            )
            for state in states
        ],
    )
    OUT.results({"boards": states})


def start_of(history: sqlite3.Connection, since: str) -> int:
    """Return the time of a date, or of the last run of a commit."""
    if not since:
        return newest_night(history)
    if _DATE.fullmatch(since):
        try:
            return parse_time(f"{since}T00:00:00Z")
        except ValueError:
            raise ConfigError(f"--since {since}: there is no such date") from None
    if re.fullmatch(r"[0-9a-f]{4,64}", since):
        (last,) = history.execute("select max(started) from run where commit_ glob ?", (f"{since}*",)).fetchone()
        if last is not None:
            return int(last) + 1
    raise ConfigError(f"--since {since}: neither a date nor a tested commit", "give 2026-11-23, or a commit")


def _values(change: Change) -> tuple[str, str]:
    sure = "" if change.sure == 1 else f", {100 * change.sure:.1f} % sure"
    return change.old, f"{change.new}{sure}"
