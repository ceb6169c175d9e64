# SPDX-License-Identifier: Apache-2.0
"""Writes the report of a nightly run, and the message if the verdict has changed.

A report is ``nightly.json``, ``junit.xml``, ``index.html``, and the report of each board. Its directory appears by
one rename, as that of a single run does, and sorts by when the run began.
"""

import contextlib
import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from utvm.base.storage.files import write_whole
from utvm.errors import ConfigError, ExitCode
from utvm.hil.figures import present_figures
from utvm.hil.html import HEADLINES, LogTail, facts_of_run, href_from, log_tails, page_templates, unfolded
from utvm.hil.nightly.display import last_line
from utvm.hil.nightly.results import BoardResult, BoardVerdict, NightlyReport, TestOfNight, tests_of
from utvm.hil.report import FILES, logs_beside, publish, write_texts, xml_document
from utvm.hil.results import Outcome, Verdict, first_line
from utvm.hil.schemas import NIGHTLY, check_schema

# The page is to stay under 300 KB.
_TESTS = 600


def write_report(report: NightlyReport, root: Path) -> Path:
    """Write a report below ``root``, point ``root/latest`` at it, and return its directory."""
    content = report.as_json()
    check_schema(content, NIGHTLY)

    def fill(draft: Path) -> None:
        for result in report.boards:
            if result.source is not None:
                (draft / result.label).mkdir()
                _copy(result.source, draft / result.label, root / report.run_id / result.label)
        write_texts(
            draft,
            {
                "nightly.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
                "junit.xml": render_junit(report),
                "index.html": render_html(report, root),
            },
        )

    return publish(root, report.run_id, fill)


def _copy(source: Path, target: Path, final: Path) -> None:
    """Copy a board's own report; the links to its logs, which stay where they are, are mended for its new place.

    Args:
        final: where ``target`` will be.
    """
    for file in FILES:
        shutil.copyfile(source / file, target / file)
    logs = logs_beside(source.parent) / source.name
    old, new = (f'href="{href_from(logs, folder)}' for folder in (source, final))
    page = target / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def render_html(report: NightlyReport, root: Path) -> str:
    """The page: what went wrong, the boards, the models, and each test with what became of it where.

    Args:
        root: the folder of all nightly reports, in which the page will be.
    """
    tests = sorted(tests_of(report.boards), key=lambda test: not test.outcome.troubled)
    suites: dict[str, list[TestOfNight]] = {}
    for test in tests[:_TESTS]:
        suites.setdefault(test.suite, []).append(test)
    models: dict[str, list[tuple[BoardResult, object]]] = {}
    for result in report.boards:
        for model in result.models:
            models.setdefault(model["name"], []).append((result, model))
    return (
        page_templates()
        .get_template("nightly.html.j2")
        .render(
            report=report,
            facts=tuple(_facts(report)),
            troubled=[result for result in report.boards if result.verdict is not BoardVerdict.PASSED],
            output=lambda result: _output(report, result, root),
            suites=suites,
            unfolded=unfolded(suites),
            counts=[(outcome.value, sum(test.outcome is outcome for test in tests)) for outcome in Outcome],
            left_out=max(0, len(tests) - _TESTS),
            headline=HEADLINES[report.verdict],
            outcomes=Outcome,
            models=models,
            figures=present_figures(model for result in report.boards for model in result.models),
        )
    )


def _facts(report: NightlyReport) -> Iterator[tuple[str, str]]:
    for verdict in BoardVerdict:
        if report.count(verdict) or verdict is BoardVerdict.PASSED:
            yield verdict.value, f"{report.count(verdict)} of {len(report.boards)} boards"
    yield from facts_of_run(report.verdict, report.checkout, report.started, report.duration_s)


def _output(report: NightlyReport, result: BoardResult, root: Path) -> list[LogTail]:
    logs = root / "logs" / report.run_id / result.label
    return [end for end in log_tails(logs, root / report.run_id) if end.name.endswith("output.txt")]


def render_junit(report: NightlyReport) -> str:
    """Return JUnit XML with one suite a board: what the board's own file holds, under the board's label.

    A board that is not passed and of whose tests none shows it gets one more case, which does.
    """
    root = ET.Element("testsuites")
    for result in report.boards:
        suite = _suite(result)
        suite.set("name", result.label)
        root.append(suite)
    return xml_document(root)


def _suite(result: BoardResult) -> ET.Element:
    existing = ET.parse(result.source / "junit.xml").getroot().find("testsuite") if result.source else None
    counters = ("tests", "failures", "errors", "skipped")
    suite = ET.Element("testsuite", dict.fromkeys(counters, "0")) if existing is None else existing
    shown = any(suite.get(counter, "0") != "0" for counter in ("failures", "errors"))
    if result.verdict is not BoardVerdict.PASSED and not shown:
        kind = "failure" if result.verdict.exit_code is ExitCode.FAILED else "error"
        case = ET.SubElement(suite, "testcase", classname="nightly", name=result.verdict.value, time="0.000")
        ET.SubElement(case, kind, message=result.reason)
        for counter in ("tests", f"{kind}s"):
            suite.set(counter, str(int(suite.get(counter, "0")) + 1))
    return suite


def previous_verdict(root: Path) -> str:
    """The verdict of the newest night that has a report; passed where there is none.

    Args:
        root: the folder of all nightly reports.
    """
    for path in sorted(root.glob("[0-9]*/nightly.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(path.read_text(encoding="utf-8"))["verdict"])
    return Verdict.PASSED.value


def write_message(path: Path, report: NightlyReport, before: str) -> None:
    """Write the message, a subject in its first line; where the verdict is as before, see that there is none."""
    now = report.verdict.value
    if now == before:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed: {error.strerror}") from error
        return
    lines = [f"nightly run {report.run_id}: {now}, {before} before", "", last_line(report)]
    lines += [
        f"{result.spoken}: {result.verdict.value}; {first_line(result.reason)}".removesuffix("; ")
        for result in report.boards
        if result.verdict.exit_code
    ]
    write_whole(path, "".join(f"{line}\n" for line in lines))
