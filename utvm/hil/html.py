# SPDX-License-Identifier: Apache-2.0
"""The report as one page: style and pictures are in the file, so that it can be mailed and kept."""

import functools
from collections.abc import Callable

import jinja2

from utvm.hil import pictures
from utvm.hil.figures import shown
from utvm.hil.results import CaseResult, Outcome, RunReport, Verdict
from utvm.templates import templates_of

HEADLINES = {
    Verdict.PASSED: "Passed",
    Verdict.FAILED: "Failed",
    Verdict.ERROR: "No verdict: an error in the suite",
    Verdict.INFRASTRUCTURE: "No verdict: infrastructure trouble",
    Verdict.INTERRUPTED: "No verdict: interrupted",
}


def render(report: RunReport) -> str:
    """Return the HTML text for a run."""
    suites: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        suites.setdefault(case.suite, []).append(case)
    template = page_templates().get_template("index.html.j2")
    return template.render(
        report=report,
        headline=HEADLINES[report.verdict],
        outcomes=Outcome,
        suites=suites,
        troubled=[case for case in report.cases if case.outcome not in (Outcome.PASSED, Outcome.SKIPPED)],
        # Of several models in one image, one map is enough.
        maps={model.firmware.digest: model for model in report.models}.values(),
        memory_map=pictures.memory_map,
        confusion_cells=pictures.confusion_cells,
        section_names=pictures.section_names,
        figures=shown(model.figures for model in report.models),
    )


@functools.cache
def page_templates() -> jinja2.Environment:
    """Return the templates of pages, with what they use to write figures."""
    environment = templates_of("utvm.hil", html=True)
    filters: dict[str, Callable[..., str]] = {
        "hex": lambda value: f"{value:#010x}",
        "bytes": spoken_bytes,
        "thousands": lambda value: f"{value:,}",
        "percent": lambda value: f"{100 * value:.2f} %",
        "seconds": lambda value: f"{value:.2f} s",
        "clock": spoken_seconds,
    }
    environment.filters.update(filters)
    return environment


def spoken_bytes(size: int) -> str:
    """Return a size for a reader: ``64 KiB`` where that is exact, ``1,234 B`` otherwise."""
    return f"{size // 1024:,} KiB" if size and size % 1024 == 0 else f"{size:,} B"


def spoken_seconds(duration: float) -> str:
    """Return a duration for a reader: minutes and seconds, ``1:07``, with hours in front where there are any."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
