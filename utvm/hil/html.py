# SPDX-License-Identifier: Apache-2.0
"""The report as one page: style and pictures are in the file, so that it can be mailed and kept.

It stays small whatever a run was like: what there is too much of is cut, and the page says so.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import jinja2

from utvm.environment.checkout import Checkout
from utvm.hil import pictures
from utvm.hil.figures import shown
from utvm.hil.logs import End, ends, part_of
from utvm.hil.results import CaseResult, ModelResult, Outcome, RunReport, Verdict
from utvm.pages import format_duration, pages_of, readable_time

HEADLINES = {
    Verdict.PASSED: "Passed",
    Verdict.FAILED: "Failed",
    Verdict.ERROR: "No verdict: an error in the suite",
    Verdict.INFRASTRUCTURE: "No verdict: infrastructure trouble",
    Verdict.INTERRUPTED: "No verdict: interrupted",
}

# A page is to stay under 300 KB.
_ARTICLES = 30
_DETAILS = 60_000  # Characters, of all articles together.
_TESTS = 600
_LINKED = 200  # Tests, with a link to where each begins in the log: more would make the page too large.
_PICTURES = 12
_FEW = 40


def render(report: RunReport, logs: Path | None = None, seen_from: Path | None = None) -> str:
    """Return the HTML text for a run.

    Args:
        logs: the folder of its logs.
        seen_from: the folder in which the page will be, for the links to the logs.
    """
    troubled = [case for case in report.cases if case.outcome.troubled]
    kept = _chosen(report.cases)
    suites: dict[str, list[CaseResult]] = {}
    for case in kept:
        suites.setdefault(case.suite, []).append(case)
    # Of several models in one image, one map is enough.
    images = {model.firmware.digest: model for model in report.models}
    found = _ends(logs, seen_from)
    linked = kept if len(kept) <= _LINKED else troubled[:_ARTICLES]
    template = page_templates().get_template("index.html.j2")
    return template.render(
        report=report,
        headline=HEADLINES[report.verdict],
        facts=tuple(_facts(report)),
        counts=[(outcome.value, report.count(outcome)) for outcome in Outcome],
        suites=suites,
        unfolded=unfolded(suites),
        left_out=len(report.cases) - len(kept),
        troubled=troubled,
        most_articles=_ARTICLES,
        details_room=max(800, _DETAILS // max(1, min(len(troubled), _ARTICLES))),
        logs=found,
        part_of=lambda case: part_of(case.node, found) if case in linked else "",
        images=len(images),
        maps=list(images.values())[:_PICTURES],
        confused=_confused(report.models),
        memory_map=pictures.memory_map,
        confusion_cells=pictures.confusion_cells,
        section_names=pictures.section_names,
        figures=shown(model.figures for model in report.models),
    )


def _ends(logs: Path | None, seen_from: Path | None) -> tuple[End, ...]:
    return ends(logs, seen_from) if logs is not None and seen_from is not None else ()


def _facts(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield what stands on top: name and value."""
    for outcome in Outcome:
        if report.count(outcome) or outcome is Outcome.PASSED:
            yield outcome.value, f"{report.count(outcome):,}"
    yield from facts_of_run(report.verdict, report.checkout, report.started, report.duration_s)


def facts_of_run(
    verdict: Verdict, checkout: Checkout, started: str, duration_s: float
) -> Iterator[tuple[str, str]]:
    """Yield what stands on top of a run's and of a night's page: exit code, commit, date and duration."""
    yield "exit code", str(int(verdict.exit_code))
    changes = " with changes" if checkout.dirty else ""
    yield "commit", f"{checkout.commit[:12]}{changes}" if checkout.commit else "none"
    yield "date", readable_time(started)
    if duration_s:
        yield "took", f"{format_duration(duration_s)} by this computer's clock"


def _chosen(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the tests that are listed, in their order: of too many, first those that did not go well."""
    room = _TESTS
    chosen: set[int] = set()
    for troubled in (True, False):
        for number, case in enumerate(cases):
            if case.outcome.troubled is troubled and room:
                chosen.add(number)
                room -= 1
    return [case for number, case in enumerate(cases) if number in chosen]


class _Test(Protocol):
    @property
    def outcome(self) -> Outcome: ...


def unfolded(suites: Mapping[str, Sequence[_Test]]) -> set[str]:
    """Return the suites whose tests are shown at once: all of a few, of many those that did not go well."""
    few = sum(map(len, suites.values())) <= _FEW
    return {suite for suite, tests in suites.items() if few or any(test.outcome.troubled for test in tests)}


def _confused(models: Sequence[ModelResult]) -> list[ModelResult]:
    return [model for model in models if model.confusion][:_PICTURES]


@functools.cache
def page_templates() -> jinja2.Environment:
    """Return the templates of this room's pages."""
    environment = pages_of("utvm.hil")
    environment.filters["shortened"] = shortened
    return environment


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out where it is too long; the end of a trace says most."""
    if len(text) <= most:
        return text
    head = most // 3
    return (
        f"{text[:head]}\n[… {len(text) - most:,} characters left out; junit.xml has them …]\n{text[head - most :]}"
    )
