# SPDX-License-Identifier: Apache-2.0
"""A chart of the three stages over modelled time, with their instructions and waits."""

from collections import Counter
from collections.abc import Sequence

from utvm.base.text.templates import templates_of
from utvm.virtual.vta.simulator import STAGES, Event

_COLOURS = {"load": "#4e79a7", "store": "#e15759", "gemm": "#59a14f", "alu": "#edc948", "finish": "#9c755f"}


def wait_cycles(events: Sequence[Event]) -> dict[tuple[str, str], int]:
    """Modelled cycles that a stage waited for another, by the two stages."""
    sums: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.start > event.ready:
            sums[event.stage, _sources(event)] += event.start - event.ready
    return dict(sums)


def picture(events: Sequence[Event]) -> str:
    """Return an SVG with a row for each stage: coloured while it works, pale while it waits, with tooltips."""
    waits = sorted(wait_cycles(events).items())
    return (
        templates_of("utvm.virtual.vta", html=True)
        .get_template("stages.svg.j2")
        .render(
            stages=STAGES,
            events=events,
            end=max((event.end for event in events), default=1),
            waits=[f"{stage} waited {cycles:,} for {source}" for (stage, source), cycles in waits],
            colours={**_COLOURS, "waits": "#dddddd"},
            sources=_sources,
        )
    )


def _sources(event: Event) -> str:
    index = STAGES.index(event.stage)
    names = [
        STAGES[index + step] for flag, step in (("pop_prev=1", -1), ("pop_next=1", 1)) if flag in event.line.split()
    ]
    return " and ".join(names)
