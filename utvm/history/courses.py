# SPDX-License-Identifier: Apache-2.0
"""How the figures of a model have gone on all boards: a page with charts that can be zoomed into.

The charts are drawn by uPlot, which lies beside the templates and is written into each page whole.
"""

import base64
import hashlib
import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources

from markupsafe import Markup

from utvm.history.changes import spoken_board

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
    name = f"{spoken_board(row)}, {row['executor']}"
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
