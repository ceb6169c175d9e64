# SPDX-License-Identifier: Apache-2.0
"""Writes the report on a nightly run: ``nightly.json``, ``junit.xml``, ``index.html``, and each board's own.

Its directory appears by one rename, as that of a single run does, and sorts by when the run began.
"""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from utvm.errors import ExitCode
from utvm.hil.figures import shown
from utvm.hil.html import HEADLINES, page_templates
from utvm.hil.junit import document, legal
from utvm.hil.nightly.results import BoardResult, BoardVerdict, NightlyReport
from utvm.hil.report import FILES, publish, write_texts
from utvm.hil.results import Outcome
from utvm.hil.schemas import NIGHTLY, check


def write(report: NightlyReport, root: Path) -> Path:
    """Write a report below ``root``, point ``root/latest`` at it, and return its directory.

    Raises:
        ConfigError: the directory cannot be written.
        jsonschema.ValidationError: the report is not what its schema says, which is an error of this project.
    """
    content = report.as_json()
    check(content, NIGHTLY)

    def fill(draft: Path) -> None:
        for result in report.boards:
            if result.source is not None:
                (draft / result.label).mkdir()
                for file in FILES:
                    shutil.copyfile(result.source / file, draft / result.label / file)
        write_texts(
            draft,
            {
                "nightly.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
                "junit.xml": render_junit(report),
                "index.html": render_html(report),
            },
        )

    return publish(root, report.run_id, fill)


def render_html(report: NightlyReport) -> str:
    """Return the page: a table of boards and a table of models."""
    models: dict[str, list[tuple[BoardResult, object]]] = {}
    for result in report.boards:
        for model in result.models:
            models.setdefault(model["name"], []).append((result, model))
    return (
        page_templates()
        .get_template("nightly.html.j2")
        .render(
            report=report,
            headline=HEADLINES[report.verdict],
            verdicts=BoardVerdict,
            outcomes=Outcome,
            models=models,
            figures=shown(model for result in report.boards for model in result.models),
        )
    )


def render_junit(report: NightlyReport) -> str:
    """Return JUnit XML with one suite a board: what the board's own file holds, under the board's label.

    A board that is not passed and of whose tests none shows it gets one more case, which does.
    """
    root = ET.Element("testsuites")
    for result in report.boards:
        suite = _suite(result)
        suite.set("name", result.label)
        root.append(suite)
    return document(root)


def _suite(result: BoardResult) -> ET.Element:
    found = ET.parse(result.source / "junit.xml").getroot().find("testsuite") if result.source else None
    counters = ("tests", "failures", "errors", "skipped")
    suite = ET.Element("testsuite", dict.fromkeys(counters, "0")) if found is None else found
    shown = any(suite.get(counter, "0") != "0" for counter in ("failures", "errors"))
    if result.verdict is not BoardVerdict.PASSED and not shown:
        kind = "failure" if result.verdict.exit_code is ExitCode.FAILED else "error"
        case = ET.SubElement(suite, "testcase", classname="nightly", name=result.verdict.value, time="0.000")
        ET.SubElement(case, kind, message=legal(result.reason))
        for counter in ("tests", f"{kind}s"):
            suite.set(counter, str(int(suite.get(counter, "0")) + 1))
    return suite
