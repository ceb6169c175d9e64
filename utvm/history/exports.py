# SPDX-License-Identifier: Apache-2.0
"""Exports of a history: the last night in five formats, and static pages with boards, charts and failed tests.

uPlot draws the charts; its script, stored beside the templates, is copied into each page.
"""

import contextlib
import datetime
import functools
import hashlib
import itertools
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from utvm import errors, pages
from utvm.base.storage.files import write_whole
from utvm.base.text.quoting import markdown_cell, prometheus_label, workflow_message, workflow_property
from utvm.history.changes import Flicker, LastGood, board_label, changes, flaky, newest_night, slowest, test_state
from utvm.history.store import DECISIVE, QUERIES, format_time
from utvm.history.values import format_value

_MONTH = 30 * 86_400
# Last: an interruption by a user says nothing about the boards.
_WORST = ("infrastructure", "bad", "not run", "error", "failed", "passed", "interrupted")
_COLOURS = {"passed": "#1a7f4b", "failed": "#c0362c", "error": "#8a3fa0"}
_NO_VERDICT = "#a35a00"


def verdict_of_night(history: sqlite3.Connection) -> str:
    rows = history.execute("select distinct verdict from run where started >= ?", (newest_night(history),))
    verdicts = {row["verdict"] for row in rows}
    return next((verdict for verdict in _WORST if verdict in verdicts), "none")


def _badge(history: sqlite3.Connection) -> str:
    word = verdict_of_night(history)
    width = 12 + 7 * len(word)
    return _render("badge.svg.j2", word=word, width=width, whole=52 + width, colour=_COLOURS.get(word, _NO_VERDICT))


def _metrics(history: sqlite3.Connection) -> str:
    """Prometheus text format, for the text file collector of a node exporter."""
    (newest,) = history.execute("select max(started) from run").fetchone()
    query = QUERIES["boards_in_service"].format(decisive=DECISIVE)
    rows = history.execute(query, ((newest or 0) - _MONTH,)).fetchall()
    gauges = {
        "utvm_board_up": ("Whether the board's last run had a verdict on its tests.", "up"),
        "utvm_board_up_ratio": ("Fraction of the board's runs in 30 days with a verdict.", "share"),
        "utvm_board_last_run_timestamp_seconds": ("Start of the board's last run.", "last"),
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
    return history.execute(QUERIES["failures"], (newest_night(history),)).fetchall()


def _job_link() -> str:
    """Return a link to the running CI job, from variables of GitHub or GitLab."""
    if "GITHUB_RUN_ID" in os.environ:
        parts = [os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
        return " ([job]({}/{}/actions/runs/{}))".format(*parts)
    return f" ([job]({os.environ['CI_JOB_URL']}))" if "CI_JOB_URL" in os.environ else ""


def summary(
    history: sqlite3.Connection, since: int | None = None, limit_of: Callable[[str, str, str, str], str] = lambda *_: ""
) -> str:
    """Markdown: failed tests of the last night, and changes in it, or since a time in seconds since the epoch.

    Args:
        limit_of: the limit, as text, of a board's name and kind, a model and a figure.
    """
    since = newest_night(history) if since is None else since
    lines = [f"## Boards: {verdict_of_night(history)}{_job_link()}", ""]
    if failures := _failures(history):
        lines += ["| failed | board | |", "|---|---|---|"]
        lines += [_row(row["id"], board_label(row), (row["message"] or "").partition("\n")[0]) for row in failures]
        lines.append("")
    if changed := changes(history, since):
        lines += [f"| changed since {format_time(since)} | board | was | is | commits |", "|---|---|---|---|---|"]
        for change in changed:
            commits = f"{(change.last or 'none')[:8]}..{(change.first or 'none')[:8]}"
            lines.append(_row(f"{change.what}, {change.name}", change.board, change.old, change.new, commits))
        lines.append("")
    if figures := list(_figures(history, limit_of)):
        lines += ["| model | board | figures |", "|---|---|---|", *(_row(*row) for row in figures)]
    return "\n".join(lines).rstrip() + "\n"


def _figures(
    history: sqlite3.Connection, limit_of: Callable[[str, str, str, str], str]
) -> Iterator[tuple[str, str, str]]:
    """Yield model, board and figures with their limits, of the last night's newest runs."""
    rows = history.execute(QUERIES["figures"], (newest_night(history),)).fetchall()
    for key, group in itertools.groupby(rows, key=lambda row: (row["model"], row["executor"], board_label(row))):
        texts = []
        for row in group:
            limit = limit_of(row["name"], row["kind"], row["model"], row["figure"])
            value = f"{row['figure']} {format_value(row['figure'], row['value'])}"
            texts.append(f"{value} ({limit})" if limit else value)
        yield f"{key[0]} ({key[1]})", key[2], ", ".join(texts)


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
    {"badge": _badge, "metrics": _metrics, "summary": summary, "annotations": _annotations, "quality": _quality}
)


_DAYS = 30
_DAY = 86_400
_SEASON = 90 * _DAY
# These keep a page below 300 KB. A chart has eight colours.
_ROWS, _RUNS, _TRENDS, _CHARTS, _LINES = 100, 30, 60, 12, 8
_WIDTH, _HEIGHT = 220.0, 30.0

Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Line:
    """A figure on one board: the points where it changed, the first and the last."""

    name: str
    times: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def steps(self) -> int:
        return _count_steps(self.values)


@dataclass(frozen=True)
class Chart:
    """A figure on all boards, most changes first; ``left_out`` is the number of boards not shown."""

    figure: str
    lines: tuple[Line, ...]
    left_out: int

    @property
    def data(self) -> list[dict[str, object]]:
        return [asdict(line) for line in self.lines]

    @property
    def summary(self) -> str:
        values = [value for line in self.lines for value in line.values]
        return f"{self.figure} on {len(self.lines)} boards, between {min(values):,} and {max(values):,}"


@dataclass(frozen=True)
class ModelPage:
    """A model with charts of its figures; ``number`` never changes."""

    number: int
    name: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class BoardRow:
    """A board: the verdict of each day, and the fraction of its runs with a verdict."""

    number: int
    name: str
    days: tuple[tuple[str, str], ...]
    up: float


@dataclass(frozen=True)
class TestRow:
    number: int
    name: str
    flaky: tuple[Flicker, ...]
    boards: tuple[LastGood, ...]

    @property
    def failing(self) -> int:
        return sum(state.now == "failed" for state in self.boards)


def write_pages(history: sqlite3.Connection, folder: Path, reports: Path) -> int:
    (newest,) = history.execute("select max(started) from run").fetchone()
    if newest is None:
        raise errors.ConfigError("the history is empty", "run hil or nightly, or import reports with history.import")
    month = newest - _DAYS * _DAY
    boards, tests = list(board_rows(history, newest)), list(_tests(history, month))
    models = list(chart_pages(history, newest - _SEASON))
    link = functools.partial(_link, reports, folder)
    texts = {"index.html": _index(history, boards, tests, models)}
    for board in boards:
        texts[f"board-{board.number}.html"] = _board_page(history, board, month, link)
    templates = resources.files("utvm.history") / "templates"
    charts = ((templates / name).read_text(encoding="utf-8") for name in ("uplot/uPlot.min.js", "charts.js"))
    script = pages.script_values("\n".join(charts))
    for model in models:
        texts[f"model-{model.number}.html"] = _render("model.html.j2", model=model, **script)
    for test in tests:
        texts[f"test-{test.number}.html"] = _render("test.html.j2", test=test, link=link)
    with errors.ConfigError.on_os_error(f"{folder}: cannot write the pages"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(folder, name, text.encode(errors="replace"))
    return len(texts)


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a page if it changed, so that sync tools skip unchanged ones."""
    with contextlib.suppress(FileNotFoundError):
        if (folder / name).read_bytes() == content:
            return
    write_whole(folder / name, content)


def _render(template: str, **values: object) -> str:
    return pages.pages_of("utvm.history").get_template(template).render(**values)


def _link(reports: Path, folder: Path, run_id: str, night: str | None) -> str:
    page = f"{reports}/{f'nightly/{night}' if night else run_id}/index.html"
    return quote(os.path.relpath(page, folder)) if Path(page).is_file() else ""


def _index(
    history: sqlite3.Connection, boards: Sequence[BoardRow], tests: Sequence[TestRow], models: Sequence[ModelPage]
) -> str:
    since = newest_night(history)
    runs = history.execute("select verdict, count(*) from run where started >= ? group by 1", (since,))
    verdicts: dict[str, int] = dict(runs.fetchall())
    changed = changes(history, since)
    return _render(
        "history.html.j2",
        since=format_time(since),
        verdict=verdict_of_night(history),
        facts=[("runs", sum(verdicts.values())), *verdicts.items(), ("changes", len(changed))],
        changes=changed[:_ROWS],
        models=models[:_ROWS],
        boards=boards[:_ROWS],
        tests=tests[:_ROWS],
        slowest=[(board_label(row), row, _duration_path(row["runs"])) for row in slowest(history, since)],
        width=_WIDTH,
        height=_HEIGHT,
        left_out=[max(0, len(rows) - _ROWS) for rows in (changed, boards, tests)],
    )


def _duration_path(runs: str | None) -> str:
    return _step_path(list(enumerate(map(float, reversed((runs or "0").split(","))))))


def board_rows(history: sqlite3.Connection, newest: int) -> Iterator[BoardRow]:
    last = datetime.datetime.fromtimestamp(newest, datetime.timezone.utc).date()
    days = [str(last - datetime.timedelta(days=back)) for back in reversed(range(_DAYS))]
    verdicts: dict[int, dict[str, str]] = {}
    up: dict[int, list[bool]] = {}
    query = "select board, date(started, 'unixepoch') day, verdict from run where started >= ? order by started, run"
    for row in history.execute(query, (newest - _DAYS * _DAY,)):
        # The last run of a day counts: a night's health check comes before its suites.
        verdicts.setdefault(row["board"], {})[row["day"]] = row["verdict"]
        if row["verdict"] != "interrupted":
            up.setdefault(row["board"], []).append(row["verdict"] in DECISIVE)
    for board in history.execute("select * from board order by name, kind, serial").fetchall():
        number = board["board"]
        if number in verdicts:
            by_day = tuple((day, verdicts[number].get(day, "no run")) for day in days)
            runs = up.get(number, [True])
            yield BoardRow(number, board_label(board), by_day, sum(runs) / len(runs))


def _tests(history: sqlite3.Connection, month: int) -> list[TestRow]:
    names = dict(history.execute("select test, id from test").fetchall())
    boards = {row["board"]: row for row in history.execute("select * from board")}
    flickers = flaky(history, month)
    states: dict[int, list[LastGood]] = {}
    for row in history.execute(QUERIES["failed_tests"], (month,)).fetchall():
        state = test_state(history, boards[row["board"]], row["test"], names[row["test"]])
        if state:
            states.setdefault(row["test"], []).append(state)
    rows = [
        TestRow(
            test,
            names[test],
            tuple(flicker for flicker in flickers if flicker.test == names[test]),
            tuple(sorted(on_boards, key=lambda state: (state.now != "failed", state.board))),
        )
        for test, on_boards in states.items()
    ]
    return sorted(rows, key=lambda row: (-row.failing, row.name))


def _board_page(history: sqlite3.Connection, board: BoardRow, month: int, link: object) -> str:
    rows = history.execute("select * from run where board = ? order by started desc, run desc", (board.number,))
    runs = [{**dict(row), "at": format_time(row["started"])} for row in rows.fetchmany(_RUNS)]
    failure = history.execute(QUERIES["last_failure"], (board.number,)).fetchone()
    return _render(
        "board.html.j2",
        board=board,
        runs=runs,
        failure={**dict(failure), "at": format_time(failure["started"])} if failure else None,
        leased=any(run["holder"] for run in runs),
        trends=list(_trends(history, board.number, month)),
        link=link,
        width=_WIDTH,
        height=_HEIGHT,
    )


def _trends(history: sqlite3.Connection, board: int, month: int) -> Iterator[dict[str, object]]:
    """Yield figures on a board in 30 days: SVG path, newest value, and number of changes."""
    for row in history.execute(QUERIES["trends_of_board"], (board, month, _TRENDS)).fetchall():
        path, now, steps = f"M0 {_HEIGHT / 2:.1f}H{_WIDTH:.0f}", row["low"], 0
        if row["low"] != row["high"]:
            points = _points(history, row["series"], month)
            path, now, steps = _step_path(points), points[-1][1], _count_steps([value for _, value in points])
        name = f"{row['model']} ({row['executor']})"
        yield {
            "name": name,
            "figure": row["figure"],
            "path": path,
            "now": format_value(row["figure"], now),
            "steps": steps,
        }


def _step_path(points: Points) -> str:
    times, values = [at for at, _ in points], [value for _, value in points]
    low, high = min(values), max(values)
    x = [(at - times[0]) / max(times[-1] - times[0], 1) * _WIDTH for at in times]
    y = [3 + (high - value) / ((high - low) or 1) * (_HEIGHT - 6) for value in values]
    moves = [f"H{x[i]:.1f}V{y[i]:.1f}" for i in range(1, len(points)) if values[i] != values[i - 1]]
    return f"M0 {y[0]:.1f}" + "".join(moves) + f"H{_WIDTH:.0f}"


def chart_pages(history: sqlite3.Connection, since: int) -> Iterator[ModelPage]:
    """Yield the pages of models with figures since a time, in seconds since the epoch."""
    for model in history.execute("select min(series) number, model from series group by model order by model"):
        charts = sorted(_charts(history, model["model"], since), key=lambda chart: -chart.lines[0].steps)
        if charts:
            yield ModelPage(model["number"], model["model"], tuple(charts[:_CHARTS]))


def _charts(history: sqlite3.Connection, model: str, since: int) -> Iterator[Chart]:
    rows = history.execute(QUERIES["charts_of_model"], (model, since)).fetchall()
    for figure, series in itertools.groupby(rows, key=lambda row: str(row["figure"])):
        lines = sorted((_line(history, row, since) for row in series), key=lambda line: -line.steps)
        yield Chart(figure, tuple(lines[:_LINES]), max(0, len(lines) - _LINES))


def _line(history: sqlite3.Connection, row: sqlite3.Row, since: int) -> Line:
    name = f"{board_label(row)}, {row['executor']}"
    if row["low"] == row["high"]:
        times = tuple(dict.fromkeys((row["first"], row["last"])))
        return Line(name, times, (row["low"],) * len(times))
    points = _points(history, row["series"], since)
    ends = (0, len(points) - 1)
    points_drawn = [point for i, point in enumerate(points) if i in ends or point[1] != points[i - 1][1]]
    return Line(name, tuple(at for at, _ in points_drawn), tuple(value for _, value in points_drawn))


def _points(history: sqlite3.Connection, series: int, since: int) -> Points:
    return [(at, value) for at, value in history.execute(QUERIES["points"], (series, since))]


def _count_steps(values: Sequence[float]) -> int:
    return sum(before != after for before, after in itertools.pairwise(values))
