# SPDX-License-Identifier: Apache-2.0
"""What the commands print that ask a history."""

import dataclasses
import re
import sqlite3
import time

from rich.table import Table

from utvm.cli.choices import JsonChoice
from utvm.cli.output import OUT, check_json, write_json
from utvm.errors import ConfigError
from utvm.hil.limits import accept_figures
from utvm.hil.project import history_file
from utvm.history.changes import Change, Value, changes, flaky, last_good, newest_night, trend
from utvm.history.store import format_time, open_history, parse_time
from utvm.pages import readable_time

_MONTH = 30 * 86400
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def show_changes(json: JsonChoice, since: str, accept: bool) -> None:
    """Print what has changed.

    Args:
        accept: take the newest figures as the baseline.
    """
    check_json(json)
    with open_history(history_file()) as history:
        begun = begin_of(history, since)
        found = changes(history, begun)
    if accept:
        OUT.print(f"the baseline is written: {accept_figures()}")
    content = {"since": format_time(begun), "changes": [dataclasses.asdict(change) for change in found]}
    if write_json(json, content):
        return
    if found:
        table = Table("what", "of", "board", "was", "is", "commits", box=None)
        for each in found:
            table.add_row(each.what, each.name, each.board, *_values(each), _commits(each))
        OUT.print(table)
    OUT.print(f"{len(found)} changes since {readable_time(format_time(begun))}")


def show_trend(json: JsonChoice, model: str, board: str) -> None:
    """Print the course of a model's figures.

    Args:
        model: its name, perhaps with a colon and a figure behind it.
    """
    check_json(json)
    name, _, figure = model.partition(":")
    with open_history(history_file()) as history:
        points = trend(history, name, figure, board)
    if write_json(json, {"points": [dataclasses.asdict(point) for point in points]}):
        return
    before: dict[tuple[str, str, str], Value] = {}
    table = Table("figure", "of", "board", "commit", "since", "value", box=None)
    for each in points:
        series = (each.figure, each.executor, each.board)
        if before.get(series) != each.value:
            words = (each.figure, f"{each.model} ({each.executor})", each.board, (each.commit or "none")[:10])
            table.add_row(*words, readable_time(each.started), _said(each.value))
        before[series] = each.value
    OUT.print(table)
    OUT.print(f"{len(points)} values, of which each is shown that is not as the one before; --json has all")


def show_flaky(json: JsonChoice, since: str) -> None:
    """Print the tests that flicker; raises as :func:`show_changes`."""
    check_json(json)
    with open_history(history_file()) as history:
        begun = begin_of(history, since) if since else int(time.time()) - _MONTH
        found = flaky(history, begun)
    content = {"since": format_time(begun), "flaky": [dataclasses.asdict(each) for each in found]}
    if write_json(json, content):
        return
    if found:
        table = Table("test", "board", "commit", "passed", "failed", "last", box=None)
        for each in found:
            counts = (str(each.passed), str(each.failed), readable_time(each.last))
            table.add_row(each.test, each.board, each.commit[:10], *counts)
        OUT.print(table)
    OUT.print(f"{len(found)} flaky since {readable_time(format_time(begun))}")


def show_last_good(json: JsonChoice, test: str, board: str) -> None:
    """Print when a test was last good."""
    check_json(json)
    with open_history(history_file()) as history:
        states = last_good(history, test, board)
    if write_json(json, {"boards": [dataclasses.asdict(state) for state in states]}):
        return
    table = Table("board", "now", "last good", "of", "failed first", "of", box=None)
    for each in states:
        good = (readable_time(each.good_at or "never"), (each.good or "")[:10])
        bad = (readable_time(each.bad_at or ""), (each.bad or "")[:10])
        table.add_row(each.board, each.now, *good, *bad)
    OUT.print(table)


def begin_of(history: sqlite3.Connection, since: str) -> int:
    """Return the moment that somebody means: a date, or the last run of a commit."""
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
    raise ConfigError(f"--since {since}: no date, and no commit that was run", "give 2026-11-23, or a commit")


def _values(change: Change) -> tuple[str, str]:
    sure = "" if change.sure == 1 else f", {100 * change.sure:.1f} % sure"
    difference = f" {change.difference}" if change.difference else ""
    return _said(change.was), f"{_said(change.now)}{difference}{sure}"


def _said(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _commits(change: Change) -> str:
    return "..".join((commit or "none")[:10] for commit in (change.last, change.first))
