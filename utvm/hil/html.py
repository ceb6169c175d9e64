# SPDX-License-Identifier: Apache-2.0
"""The report as one self-contained HTML page. Long lists and texts are truncated, with a note."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from utvm.base.log import FILE
from utvm.firmware import Firmware
from utvm.hil import figures, results
from utvm.pages import format_duration, pages_of, readable_time
from utvm.provenance.location import Checkout

_FILES = 12
_TAIL_BYTES = 3_000
TEST_MARKER = "test {}"
"""Log message at the start of a test."""


@dataclass(frozen=True)
class LogTail:
    name: str
    href: str
    size: int
    tail: str


def log_tails(logs: Path, seen_from: Path) -> tuple[LogTail, ...]:
    """Return the tails of the logs in a folder, smallest first: the largest contains the others."""
    tails = sorted(_read_tails(logs, seen_from), key=lambda tail: (tail.size, tail.name))
    return tuple(tails[-_FILES:])


def href_from(logs: Path, seen_from: Path) -> str:
    return quote(os.path.relpath(logs, seen_from)) + "/"


def link_to_test(node: str, tails: Sequence[LogTail]) -> str:
    """Link to the start of a test in the full log; empty if there is none.

    Browsers scroll to the text after ``:~:text=``; older ones show the top of the log.
    """
    href = next((tail.href for tail in tails if tail.name == FILE), "")
    # Hyphens and commas are syntax in text fragments.
    return f"{href}#:~:text={quote(TEST_MARKER.format(node), safe='').replace('-', '%2D')}" if href else ""


def _read_tails(logs: Path, seen_from: Path) -> Iterator[LogTail]:
    base = href_from(logs, seen_from)
    for path in sorted(logs.rglob("*")):
        # Another process may delete old logs; only text files are logs.
        with contextlib.suppress(OSError):
            if not path.is_file() or path.suffix not in (".log", ".txt") or not path.stat().st_size:
                continue
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(0, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
            name = path.relative_to(logs).as_posix()
            yield LogTail(name, base + quote(name), size, text.partition("\n")[2] if size > _TAIL_BYTES else text)


_BAR_WIDTH = 720.0
# Keeps a section of a few bytes visible in a megabyte of flash.
_MIN_WIDTH = 2.0


@dataclass(frozen=True)
class Mark:
    """A section in a region's bar: offset and width in picture units, and colour index."""

    name: str
    address: int
    size: int
    x: float
    width: float
    colour: int


@dataclass(frozen=True)
class Bar:
    """A memory region of the board, drawn to its own scale, and the firmware's sections in it."""

    name: str
    kind: str
    address: int
    size: int
    used: int
    marks: tuple[Mark, ...]

    @property
    def share(self) -> float:
        return self.used / self.size


def memory_map(firmware: Firmware) -> tuple[Bar, ...]:
    """Place the sections of a firmware in the memory regions of its board, in address order.

    A section with a separate load address appears in both places. Alias regions are omitted, since they would show
    the same bytes twice. A process has no regions.
    """
    sections: list[tuple[str, int, int]] = []
    for section in firmware.sections:
        sections.append((section.name, section.address, section.size))
        if section.load_address is not None and section.load_address != section.address:
            sections.append((f"{section.name} (initial values)", section.load_address, section.size))
    colours = {name: number for number, name in enumerate(firmware.section_names)}
    bars = []
    for region in sorted(firmware.board.memory, key=lambda region: region.address):
        if region.alias_of:
            continue
        scale = _BAR_WIDTH / region.size
        in_region = [place for place in sections if region.address <= place[1] < region.end]
        marks = tuple(
            Mark(
                name,
                address,
                size,
                x=min((address - region.address) * scale, _BAR_WIDTH - _MIN_WIDTH),
                width=max(size * scale, _MIN_WIDTH),
                colour=colours[name.split(" ")[0]],
            )
            for name, address, size in sorted(in_region, key=lambda place: place[1])
        )
        used = sum(mark.size for mark in marks)
        bars.append(Bar(region.name, region.kind, region.address, region.size, used, marks))
    return tuple(bars)


HEADLINES = {
    results.Verdict.PASSED: "Passed",
    results.Verdict.FAILED: "Failed",
    results.Verdict.ERROR: "No verdict: an error in the suite",
    results.Verdict.INFRASTRUCTURE: "No verdict: infrastructure trouble",
    results.Verdict.INTERRUPTED: "No verdict: interrupted",
}

# The page must stay under 300 KB.
_ARTICLES = 30
_DETAILS = 60_000  # Characters, of all articles together.
_TESTS = 600
_LINKED = 200  # Tests linked to their start in the log.
_PICTURES = 12
_FEW = 40


def render_page(report: results.RunReport, logs: Path | None = None, seen_from: Path | None = None) -> str:
    troubled = [case for case in report.cases if case.outcome.has_trouble]
    cases = _cases_to_list(report.cases)
    suites: dict[str, list[results.CaseResult]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    # Models in the same image share one memory map.
    images = {model.firmware.digest: model for model in report.models}
    tails = log_tails(logs, seen_from) if logs is not None and seen_from is not None else ()
    with_links = cases if len(cases) <= _LINKED else troubled[:_ARTICLES]
    template = pages_of("utvm.hil").get_template("index.html.j2")
    return template.render(
        report=report,
        headline=HEADLINES[report.verdict],
        facts=tuple(_facts(report)),
        counts=[(outcome.value, report.count(outcome)) for outcome in results.Outcome],
        suites=suites,
        open_suites=open_suites(suites),
        left_out=len(report.cases) - len(cases),
        troubled=troubled,
        most_articles=_ARTICLES,
        details_room=max(800, _DETAILS // max(1, min(len(troubled), _ARTICLES))),
        logs=tails,
        link_to_test=lambda case: link_to_test(case.node, tails) if case in with_links else "",
        images=len(images),
        maps=list(images.values())[:_PICTURES],
        confused=[model for model in report.models if model.confusion][:_PICTURES],
        memory_map=memory_map,
        figures=figures.present_figures(model.figures for model in report.models),
    )


def _facts(report: results.RunReport) -> Iterator[tuple[str, str]]:
    for outcome in results.Outcome:
        if report.count(outcome) or outcome is results.Outcome.PASSED:
            yield outcome.value, f"{report.count(outcome):,}"
    yield from facts_of_run(report.verdict, report.checkout, report.started, report.duration_s)


def facts_of_run(
    verdict: results.Verdict, checkout: Checkout, started: str, duration_s: float
) -> Iterator[tuple[str, str]]:
    """Yield the facts at the top of a run's or a nightly page: exit code, commit, date, duration."""
    yield "exit code", str(int(verdict.exit_code))
    changes = " with changes" if checkout.dirty else ""
    yield "commit", f"{checkout.commit[:12]}{changes}" if checkout.commit else "none"
    yield "date", readable_time(started)
    if duration_s:
        yield "took", f"{format_duration(duration_s)} of host wall time"


def _cases_to_list(cases: Sequence[results.CaseResult]) -> list[results.CaseResult]:
    left = _TESTS
    numbers: set[int] = set()
    for troubled in (True, False):
        for number, case in enumerate(cases):
            if case.outcome.has_trouble is troubled and left:
                numbers.add(number)
                left -= 1
    return [case for number, case in enumerate(cases) if number in numbers]


def open_suites(suites: Mapping[str, Sequence[Any]]) -> set[str]:
    """Return the suites to expand: all if there are few tests, else those with trouble."""
    few = sum(map(len, suites.values())) <= _FEW
    return {suite for suite, tests in suites.items() if few or any(test.outcome.has_trouble for test in tests)}
