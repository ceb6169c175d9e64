# SPDX-License-Identifier: Apache-2.0
"""A chart of the three stages over modelled time, with their instructions and waits."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from utvm.virtual.vta.simulator import STAGES, Event

_WIDTH, _ROW, _BAR, _LEFT = 960, 56, 24, 90
_COLOURS = {"load": "#4e79a7", "store": "#e15759", "gemm": "#59a14f", "alu": "#edc948", "finish": "#9c755f"}
_WAITS = "#dddddd"
_MARKS = 5  # Marks of the axis, besides 0.


def wait_cycles(events: Sequence[Event]) -> dict[tuple[str, str], int]:
    """Modelled cycles that a stage waited for another, by the two stages."""
    sums: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.start > event.ready:
            sums[event.stage, _sources(event)] += event.start - event.ready
    return dict(sums)


def picture(events: Sequence[Event]) -> str:
    """Return an SVG with a row for each stage: coloured while it works, pale while it waits, with tooltips."""
    return "\n".join(_lines(events))


def _lines(events: Sequence[Event]) -> Iterator[str]:
    end = max((event.end for event in events), default=1)
    scale = (_WIDTH - _LEFT) / end
    waits = [
        f"{stage} waited {cycles:,} for {source}" for (stage, source), cycles in sorted(wait_cycles(events).items())
    ]
    height = _ROW * len(STAGES) + 20 * (len(waits) + 1) + 70
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'role="img" aria-label="VTA\'s stages over modelled cycles">'
    )
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    for row, stage in enumerate(STAGES):
        yield f'<text x="0" y="{row * _ROW + 30}" font-size="14">{stage}</text>'
    for event in events:
        y = STAGES.index(event.stage) * _ROW + 12
        if event.start > event.ready:
            yield _bar(event.ready, event.start, y, scale, _WAITS, f"waits for {_sources(event)}: {event.line}")
        kind = event.line.split()[0]
        colour = _COLOURS[kind]
        yield _bar(event.start, event.end, y, scale, colour, event.line)
    axis = _ROW * len(STAGES) + 4
    for number in range(_MARKS + 1):
        x, anchor = _LEFT + (_WIDTH - _LEFT) * number / _MARKS, "end" if number == _MARKS else "middle"
        cycles = f"{end * number // _MARKS:,}"
        yield f'<text x="{x:.0f}" y="{axis}" font-size="12" text-anchor="{anchor}">{cycles}</text>'
    yield f'<text x="0" y="{axis}" font-size="12">cycles</text>'
    for number, (name, colour) in enumerate({**_COLOURS, "waits": _WAITS}.items()):
        x = _LEFT + 110 * number
        yield f'<rect x="{x}" y="{axis + 14}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{axis + 25}" font-size="12">{name}</text>'
    bottom = axis + 50
    for number, line in enumerate([f"{end:,} modelled cycles", *waits]):
        yield f'<text x="0" y="{bottom + 20 * number}" font-size="12">{line}</text>'
    yield "</svg>"


def _bar(start: int, end: int, y: int, scale: float, colour: str, title: str) -> str:
    box = f'x="{_LEFT + start * scale:.2f}" y="{y}" width="{(end - start) * scale:.2f}" height="{_BAR}"'
    return f'<rect {box} fill="{colour}"><title>{start:,} to {end:,}: {escape(title)}</title></rect>'


def _sources(event: Event) -> str:
    index = STAGES.index(event.stage)
    names = [
        STAGES[index + step] for flag, step in (("pop_prev=1", -1), ("pop_next=1", 1)) if flag in event.line.split()
    ]
    return " and ".join(names)
