# SPDX-License-Identifier: Apache-2.0
"""Exports of the last night: badge, Prometheus metrics, Markdown, GitHub annotations, GitLab code quality."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from utvm.base.text.quoting import markdown_cell, prometheus_label, workflow_message, workflow_property
from utvm.history.changes import board_label, changes, newest_night
from utvm.history.store import DECISIVE, format_time

_MONTH = 30 * 86_400
_WORST = ("infrastructure", "bad", "interrupted", "not run", "error", "failed", "passed")
_COLOURS = {"passed": "#1a7f4b", "failed": "#c0362c", "error": "#8a3fa0"}
_NO_VERDICT = "#a35a00"
_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img"
  aria-label="boards: {word}">
<title>boards: {word}</title><rect width="52" height="20" fill="#3b4450"/>
<rect x="52" width="{width}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">boards</text>
<text x="58" y="14">{word}</text></g></svg>
"""


def verdict_of_night(history: sqlite3.Connection) -> str:
    rows = history.execute("select distinct verdict from run where started >= ?", (newest_night(history),))
    verdicts = {row["verdict"] for row in rows}
    return next((verdict for verdict in _WORST if verdict in verdicts), "none")


def _badge(history: sqlite3.Connection) -> str:
    word = verdict_of_night(history)
    width = 12 + 7 * len(word)
    return _BADGE.format(word=word, width=width, whole=52 + width, colour=_COLOURS.get(word, _NO_VERDICT))


def _metrics(history: sqlite3.Connection) -> str:
    """Prometheus text format, for the text file collector of a node exporter."""
    (newest,) = history.execute("select max(started) from run").fetchone()
    rows = history.execute(
        f"select name, kind, serial, max(started) last, avg(verdict in {DECISIVE}) share,"
        f" (select verdict in {DECISIVE} from run r where r.board = run.board"
        " order by started desc, run desc limit 1) up"
        " from run join board using (board) where started >= ? group by board order by name, kind, serial",
        ((newest or 0) - _MONTH,),
    ).fetchall()
    gauges = {
        "utvm_board_up": ("Whether the board's last run had a verdict on its tests.", "up"),
        "utvm_board_up_ratio": ("The share of its runs in 30 days that had one.", "share"),
        "utvm_board_last_run_timestamp_seconds": ("When its last run began.", "last"),
    }
    return "".join(
        gauge(name, text, [({key: row[key] for key in ("name", "kind", "serial")}, row[column]) for row in rows])
        for name, (text, column) in gauges.items()
    )


def gauge(name: str, text: str, values: Sequence[tuple[Mapping[str, str], float]]) -> str:
    """Format a gauge for Prometheus: help text, and values with their labels."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    for labels, value in values:
        pairs = ",".join(f'{key}="{prometheus_label(label)}"' for key, label in labels.items())
        lines.append(f"{name}{{{pairs}}} {value:.10g}" if pairs else f"{name} {value:.10g}")
    return "".join(f"{line}\n" for line in lines)


def _failures(history: sqlite3.Connection) -> list[sqlite3.Row]:
    return history.execute(
        "select id, message, board.* from run cross join outcome using (run) join test using (test)"
        " join board using (board)"
        " where started >= ? and outcome = 1 order by id, name, kind, serial",
        (newest_night(history),),
    ).fetchall()


def _summary(history: sqlite3.Connection) -> str:
    since = newest_night(history)
    lines = [f"## Boards: {verdict_of_night(history)}", ""]
    if failures := _failures(history):
        lines += ["| failed | board | |", "|---|---|---|"]
        lines += [_row(row["id"], board_label(row), (row["message"] or "").partition("\n")[0]) for row in failures]
        lines.append("")
    if changed := changes(history, since):
        lines += [f"| changed since {format_time(since)} | board | was | is | commits |", "|---|---|---|---|---|"]
        for change in changed:
            commits = f"{(change.last or 'none')[:8]}..{(change.first or 'none')[:8]}"
            now = f"{change.now} {change.difference}".rstrip()
            lines.append(_row(f"{change.what}, {change.name}", change.board, str(change.was), now, commits))
    return "\n".join(lines).rstrip() + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(markdown_cell(cell) for cell in cells)} |"


def _annotations(history: sqlite3.Connection) -> str:
    """GitHub workflow commands: a line for each failed test."""
    return "".join(
        f"::error title={workflow_property(title)}::{workflow_message(message)}\n"
        for row in _failures(history)
        for title, message in ((f"{row['id']} on {board_label(row)}", row["message"] or "failed"),)
    )


def _quality(history: sqlite3.Connection) -> str:
    """GitLab code quality report: an entry for each failed test."""
    titles = [(row, f"{row['id']} on {board_label(row)}") for row in _failures(history)]
    entries = [
        {
            "description": f"{title}: {row['message'] or 'failed'}",
            "check_name": row["id"],
            "fingerprint": hashlib.sha256(title.encode()).hexdigest(),
            "severity": "critical",
            "location": {"path": row["id"].partition("::")[0], "lines": {"begin": 1}},
        }
        for row, title in titles
    ]
    return json.dumps(entries, indent=2) + "\n"


EXPORTS: Mapping[str, Callable[[sqlite3.Connection], str]] = MappingProxyType(
    {"badge": _badge, "metrics": _metrics, "summary": _summary, "annotations": _annotations, "quality": _quality}
)
