# SPDX-License-Identifier: Apache-2.0
"""The picture of a search: the count of each candidate of each layer, and the best so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from utvm.pages import pages_of
from utvm.tuning.log import LogEntry
from utvm.tuning.tuner import Tuner

_WIDTH, _HEIGHT = 900.0, 160.0
_MOST = 2.0  # Top of the chart, as a multiple of the count without tuning.


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    colour: int
    hint: str


@dataclass(frozen=True)
class SearchPicture:
    """The search for one layer; ``course`` is the best so far, as SVG points, ``level`` the untuned count."""

    makes: str
    before: int
    best: int
    level: float
    progress: str
    dots: Sequence[Dot]


def render(tuner: Tuner, title: str, board: str) -> str:
    searches = [
        _search(layer.makes, before, best, entries)
        for layer, before, best, _ in tuner.rows()
        if (
            entries := [
                entry for entry in tuner.entries if entry.layer == layer.name and _counts(entry, tuner.unit)
            ]
        )
    ]
    template = pages_of("utvm.cli").get_template("tune.html.j2")
    return template.render(
        searches=searches, title=title, board=board, unit=tuner.unit, width=_WIDTH, height=_HEIGHT
    )


def _counts(entry: LogEntry, unit: str) -> bool:
    return entry.unit == unit and entry.kind != "default" and entry.count is not None


def _search(makes: str, before: int, best: int, entries: Sequence[LogEntry]) -> SearchPicture:
    step = _WIDTH / len(entries)
    dots, progress, least = [], [], before
    for number, entry in enumerate(entries):
        count, x = entry.count or 0, step * (number + 0.5)
        progress.append(f"{x - step / 2:.1f},{_level(least, before)}")
        least = min(least, count)
        progress.append(f"{x - step / 2:.1f},{_level(least, before)}")
        hint = f"{number + 1}: {count:,} {entry.unit}"
        dots.append(Dot(round(x, 1), _level(count, before), int(entry.kind == "kernel"), hint))
    progress.append(f"{_WIDTH:.1f},{_level(least, before)}")
    return SearchPicture(makes, before, best, _level(before, before), " ".join(progress), dots)


def _level(count: int, before: int) -> float:
    return round(_HEIGHT * (1 - min(count / max(before, 1), _MOST) / _MOST), 1)
