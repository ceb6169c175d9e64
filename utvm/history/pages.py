# SPDX-License-Identifier: Apache-2.0
"""The history as a folder of pages for any web server: what changed, each board, and each test that has failed."""

import base64
import contextlib
import datetime
import functools
import hashlib
import itertools
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from utvm.errors import ConfigError
from utvm.history.changes import LastGood, board_label, changes, flaky, newest_night, test_state
from utvm.history.exports import verdict_of_night
from utvm.history.store import DECISIVE, format_time
from utvm.pages import pages_of

_DAYS = 30
_DAY = 86_400
# A page is to stay under 300 KB.
_ROWS, _RUNS, _TRENDS = 100, 30, 60
_WIDTH, _HEIGHT = 220.0, 30.0

Row = sqlite3.Row


@dataclass(frozen=True)
class FigureCourse:
    """How a figure has gone on a board: the path of a picture, the newest value, and how many steps there were."""

    name: str
    figure: str
    path: str
    now: float
    steps: int


@dataclass(frozen=True)
class BoardRow:
    """A board in the last nights: the verdict of each day, and the share of its runs that had one on its tests."""

    number: int
    name: str
    days: tuple[tuple[str, str], ...]
    up: float


@dataclass(frozen=True)
class TestRow:
    """A test that has failed in the last nights, on these boards."""

    number: int
    name: str
    flaky: bool
    boards: tuple[LastGood, ...]

    @property
    def failing(self) -> int:
        """On how many boards it fails now."""
        return sum(state.now == "failed" for state in self.boards)


def write_pages(history: sqlite3.Connection, folder: Path, reports: Path) -> int:
    """Write all pages, and return how many.

    Args:
        reports: the folder of all reports, which the pages link to.
    """
    newest = history.execute("select max(started) from run").fetchone()[0]
    if newest is None:
        raise ConfigError("the history is empty", "hil and nightly write it; history.import makes it")
    month = newest - _DAYS * _DAY
    boards, tests = list(_boards(history, newest)), list(_tests(history, month))
    shown = list(models(history, newest))
    link = functools.partial(_link, reports, folder)
    texts = {"index.html": _index(history, boards, tests, shown)}
    for board in boards:
        texts[f"board-{board.number}.html"] = _of_board(history, board, month, link)
    script = chart_script()
    for model in shown:
        texts[f"model-{model.number}.html"] = _page("model.html.j2", model=model, **script)
    for test in tests:
        texts[f"test-{test.number}.html"] = _page("test.html.j2", test=test, link=link)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(folder, name, text.encode(errors="replace"))
    except OSError as error:
        raise ConfigError(f"{folder}: the pages cannot be written: {error.strerror or error}") from error
    return len(texts)


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a page where it is another than it was: what copies pages to a server copies no more."""
    with contextlib.suppress(FileNotFoundError):
        if (folder / name).read_bytes() == content:
            return
    draft = folder / f".{name}"
    draft.write_bytes(content)
    draft.replace(folder / name)


@functools.cache
def _templates() -> jinja2.Environment:
    return pages_of("utvm.history")


def _page(template: str, **known: object) -> str:
    return _templates().get_template(template).render(**known)


def _link(reports: Path, folder: Path, run_id: str, night: str | None) -> str:
    page = f"{reports}/{f'nightly/{night}' if night else run_id}/index.html"
    return quote(os.path.relpath(page, folder)) if Path(page).is_file() else ""


def _index(
    history: sqlite3.Connection, boards: Sequence[BoardRow], tests: Sequence[TestRow], shown: Sequence["ModelPage"]
) -> str:
    since = newest_night(history)
    runs = history.execute(
        "select verdict, count(*) n from run where started >= ? group by 1", (since,)
    ).fetchall()
    verdicts = {row["verdict"]: row["n"] for row in runs}
    found = changes(history, since)
    return _page(
        "history.html.j2",
        since=format_time(since),
        verdict=verdict_of_night(history),
        facts=[("runs", sum(verdicts.values())), *verdicts.items(), ("changes", len(found))],
        changes=found[:_ROWS],
        models=shown[:_ROWS],
        boards=boards[:_ROWS],
        tests=tests[:_ROWS],
        left_out=[max(0, len(rows) - _ROWS) for rows in (found, boards, tests)],
    )


def _boards(history: sqlite3.Connection, newest: int) -> Iterator[BoardRow]:
    last = datetime.datetime.fromtimestamp(newest, datetime.timezone.utc).date()
    days = [str(last - datetime.timedelta(days=back)) for back in reversed(range(_DAYS))]
    seen: dict[int, dict[str, str]] = {}
    up: dict[int, list[bool]] = {}
    asked = (
        "select board, date(started, 'unixepoch') day, verdict from run where started >= ? order by started, run"
    )
    for row in history.execute(asked, (newest - _DAYS * _DAY,)):
        # The last run of a day counts: a night's health check comes before its suites.
        seen.setdefault(row["board"], {})[row["day"]] = row["verdict"]
        up.setdefault(row["board"], []).append(row["verdict"] in DECISIVE)
    for board in history.execute("select * from board order by name, kind, serial").fetchall():
        number = board["board"]
        if number in seen:
            share = sum(up[number]) / len(up[number])
            kept = tuple((day, seen[number].get(day, "no run")) for day in days)
            yield BoardRow(number, board_label(board), kept, share)


def _tests(history: sqlite3.Connection, month: int) -> Iterator[TestRow]:
    names = dict(history.execute("select test, id from test").fetchall())
    boards = {row["board"]: row for row in history.execute("select * from board")}
    flickering = {each.test for each in flaky(history, month)}
    pairs = history.execute(
        "select distinct test, board from run cross join outcome using (run) where started >= ? and outcome = 1",
        (month,),
    ).fetchall()
    states: dict[int, list[LastGood]] = {}
    for row in pairs:
        state = test_state(history, boards[row["board"]], row["test"], names[row["test"]])
        if state:
            states.setdefault(row["test"], []).append(state)
    rows = [
        TestRow(
            *(test, names[test], names[test] in flickering),
            tuple(sorted(found, key=lambda state: (state.now != "failed", state.board))),
        )
        for test, found in states.items()
    ]
    yield from sorted(rows, key=lambda row: (-row.failing, row.name))


def _of_board(history: sqlite3.Connection, board: BoardRow, month: int, link: object) -> str:
    rows = history.execute("select * from run where board = ? order by started desc, run desc", (board.number,))
    runs = [{**dict(row), "at": format_time(row["started"])} for row in rows.fetchmany(_RUNS)]
    return _page(
        "board.html.j2",
        board=board,
        runs=runs,
        leased=any(run["holder"] for run in runs),
        courses=list(_courses(history, board.number, month)),
        link=link,
        width=_WIDTH,
        height=_HEIGHT,
    )


def _courses(history: sqlite3.Connection, board: int, month: int) -> Iterator[FigureCourse]:
    rows = history.execute(
        "select series, model, executor, figure, min(value) low, max(value) high"
        " from series join figure using (series)"
        f" where board = ? and started >= ? and {NUMBER} group by series order by model, executor, figure limit ?",
        (board, month, _TRENDS),
    )
    for row in rows.fetchall():
        name = f"{row['model']} ({row['executor']})"
        if row["low"] == row["high"]:
            yield FigureCourse(name, row["figure"], f"M0 {_HEIGHT / 2:.1f}H{_WIDTH:.0f}", row["low"], 0)
            continue
        points = points_of(history, row["series"], month)
        steps = sum(one[1] != other[1] for one, other in itertools.pairwise(points))
        yield FigureCourse(name, row["figure"], _steps(points), points[-1][1], steps)


def _steps(points: Sequence[tuple[int, float]]) -> str:
    """Return a line in steps of values that differ: between two runs nothing is known."""
    times, values = [at for at, _ in points], [value for _, value in points]
    low, high = min(values), max(values)
    x = [(at - times[0]) / ((times[-1] - times[0]) or 1) * _WIDTH for at in times]
    y = [3 + (high - value) / (high - low) * (_HEIGHT - 6) for value in values]
    moves = [f"H{x[i]:.1f}V{y[i]:.1f}" for i in range(1, len(points)) if values[i] != values[i - 1]]
    return f"M0 {y[0]:.1f}" + "".join(moves) + f"H{_WIDTH:.0f}"


_SEASON = 90 * 86_400
_CHARTS, _LINES = 12, 8  # A page is to stay under 300 KB, and its lines in colours that differ.


@dataclass(frozen=True)
class Line:
    """A figure on one board.

    Attributes:
        times: seconds since 1970 of its first run, of those in which it was another, and of the last.
        values: what it was in them.
    """

    name: str
    times: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def steps(self) -> int:
        """How often it was another than in the run before."""
        return sum(one != other for one, other in itertools.pairwise(self.values))


@dataclass(frozen=True)
class Chart:
    """A figure on all boards, what has changed most often first; ``left_out`` says how many more there are."""

    figure: str
    lines: tuple[Line, ...]
    left_out: int

    @property
    def drawn(self) -> list[dict[str, object]]:
        """The lines, for the page's script."""
        return [asdict(line) for line in self.lines]

    @property
    def spoken(self) -> str:
        """What is to be seen, for those who do not see."""
        every = [value for line in self.lines for value in line.values]
        return f"{self.figure} on {len(self.lines)} boards, between {min(every):,} and {max(every):,}"


@dataclass(frozen=True)
class ModelPage:
    """A model with the charts of its figures; its number stays the same for good."""

    number: int
    name: str
    charts: tuple[Chart, ...]


def models(history: sqlite3.Connection, newest: int) -> Iterator[ModelPage]:
    """Yield the models that had figures in the last ninety days.

    Args:
        newest: when the last run began, in seconds since 1970.
    """
    for model in history.execute("select min(series) number, model from series group by model order by model"):
        charts = list(_charts(history, model["model"], newest - _SEASON))
        if charts:
            charts.sort(key=lambda chart: -chart.lines[0].steps)
            yield ModelPage(model["number"], model["model"], tuple(charts[:_CHARTS]))


def _charts(history: sqlite3.Connection, model: str, since: int) -> Iterator[Chart]:
    # Most have one value all the time, which SQLite sees faster than a line of it is made.
    rows = history.execute(
        "select series, figure, executor, name, kind, serial, min(value) low, max(value) high,"
        " min(started) first, max(started) last from series join board using (board) join figure using (series)"
        f" where model = ? and started >= ? and {NUMBER} group by series"
        " order by figure, name, kind, serial, executor, series",
        (model, since),
    ).fetchall()
    for figure, of_figure in itertools.groupby(rows, key=lambda row: str(row["figure"])):
        lines = [_line(history, row, since) for row in of_figure]
        lines.sort(key=lambda line: -line.steps)
        yield Chart(figure, tuple(lines[:_LINES]), max(0, len(lines) - _LINES))


def _line(history: sqlite3.Connection, row: sqlite3.Row, since: int) -> Line:
    name = f"{board_label(row)}, {row['executor']}"
    if row["low"] == row["high"]:
        times = tuple(dict.fromkeys((row["first"], row["last"])))
        return Line(name, times, (row["low"],) * len(times))
    points = points_of(history, row["series"], since)
    kept = [
        point for i, point in enumerate(points) if not i or i == len(points) - 1 or point[1] != points[i - 1][1]
    ]
    return Line(name, *(tuple(part) for part in zip(*kept, strict=True)))


NUMBER = "typeof(value) in ('integer', 'real')"
"""What of a figure's values a line can be drawn of."""


def points_of(history: sqlite3.Connection, series: int, since: int) -> list[tuple[int, float]]:
    """Return when a figure of a model on a board had which value, in the order of its runs."""
    asked = (
        f"select started, value from figure where series = ? and started >= ? and {NUMBER} order by started, run"
    )
    return [(at, value) for at, value in history.execute(asked, (series, since))]


def chart_script() -> dict[str, str]:
    """Return what draws charts, and its hash for the page's policy, under the names that pages know."""
    folder = resources.files("utvm.history") / "templates"
    parts = ("uplot/uPlot.min.js", "charts.js")
    script = Markup("\n".join((folder / name).read_text(encoding="utf-8") for name in parts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"page_script": script, "page_script_hash": f"sha256-{digest}"}
