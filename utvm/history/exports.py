# SPDX-License-Identifier: Apache-2.0
"""What others read of the last night: a badge, Prometheus, a summary in Markdown, GitHub's and GitLab's marks."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from xml.sax.saxutils import escape

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
    """Return the worst verdict of the last night; ``none`` of an empty history."""
    rows = history.execute("select distinct verdict from run where started >= ?", (newest_night(history),))
    found = {row["verdict"] for row in rows}
    return next((word for word in _WORST if word in found), "none")


def _badge(history: sqlite3.Connection) -> str:
    word = verdict_of_night(history)
    width = 12 + 7 * len(word)
    return _BADGE.format(word=word, width=width, whole=52 + width, colour=_COLOURS.get(word, _NO_VERDICT))


def _metrics(history: sqlite3.Connection) -> str:
    """Return Prometheus's text format, for a file that a node exporter reads."""
    (newest,) = history.execute("select max(started) from run").fetchone()
    rows = history.execute(
        f"select name, kind, serial, max(started) last, avg(verdict in {DECISIVE}) share,"
        f" (select verdict in {DECISIVE} from run r where r.board = run.board"
        " order by started desc, run desc limit 1) up"
        " from run join board using (board) where started >= ? group by board order by name, kind, serial",
        ((newest or 0) - _MONTH,),
    ).fetchall()
    told = {
        "utvm_board_up": ("Whether the board's last run had a verdict on its tests.", "up"),
        "utvm_board_up_ratio": ("The share of its runs in 30 days that had one.", "share"),
        "utvm_board_last_run_timestamp_seconds": ("When its last run began.", "last"),
    }
    return "".join(
        gauge(name, means, [({key: row[key] for key in ("name", "kind", "serial")}, row[column]) for row in rows])
        for name, (means, column) in told.items()
    )


def gauge(name: str, means: str, values: Sequence[tuple[Mapping[str, str], float]]) -> str:
    """Return a figure as Prometheus reads it: each value with its labels."""
    lines = [f"# HELP {name} {means}", f"# TYPE {name} gauge"]
    for labels, value in values:
        spoken = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{spoken}}} {value:.10g}" if spoken else f"{name} {value:.10g}")
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _failed(history: sqlite3.Connection) -> Iterator[sqlite3.Row]:
    yield from history.execute(
        "select id, message, board.* from run cross join outcome using (run) join test using (test)"
        " join board using (board)"
        " where started >= ? and outcome = 1 order by id, name, kind, serial",
        (newest_night(history),),
    )


def _summary(history: sqlite3.Connection) -> str:
    since = newest_night(history)
    lines = [f"## Boards: {verdict_of_night(history)}", ""]
    failed = list(_failed(history))
    if failed:
        lines += ["| failed | board | |", "|---|---|---|"]
        lines += [
            _row(each["id"], board_label(each), (each["message"] or "").partition("\n")[0]) for each in failed
        ]
        lines.append("")
    found = changes(history, since)
    if found:
        lines += [f"| changed since {format_time(since)} | board | was | is | commits |", "|---|---|---|---|---|"]
        for each in found:
            commits = f"{(each.last or 'none')[:8]}..{(each.first or 'none')[:8]}"
            now = f"{each.now} {each.difference}".rstrip()
            lines.append(_row(f"{each.what}, {each.name}", each.board, str(each.was), now, commits))
    return "\n".join(lines).rstrip() + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(escape(cell).replace('|', '&#124;') for cell in cells)} |"


def _annotations(history: sqlite3.Connection) -> str:
    """Return GitHub's workflow commands: a line for each test that failed."""
    lines = []
    for each in _failed(history):
        title = f"{each['id']} on {board_label(each)}"
        for mark, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
            title = title.replace(mark, code)
        message = (each["message"] or "failed").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        lines.append(f"::error title={title}::{message}\n")
    return "".join(lines)


def _quality(history: sqlite3.Connection) -> str:
    """Return GitLab's report of code quality: an entry for each test that failed."""
    entries = []
    for each in _failed(history):
        title = f"{each['id']} on {board_label(each)}"
        entries.append(
            {
                "description": f"{title}: {each['message'] or 'failed'}",
                "check_name": each["id"],
                "fingerprint": hashlib.sha256(title.encode()).hexdigest(),
                "severity": "critical",
                "location": {"path": each["id"].partition("::")[0], "lines": {"begin": 1}},
            }
        )
    return json.dumps(entries, indent=2) + "\n"


EXPORTS: Mapping[str, Callable[[sqlite3.Connection], str]] = MappingProxyType(
    {"badge": _badge, "metrics": _metrics, "summary": _summary, "annotations": _annotations, "quality": _quality}
)
