# SPDX-License-Identifier: Apache-2.0
"""JUnit XML, as CI servers read it: a failed test is a ``failure``, one without an answer an ``error``."""

import json
import xml.etree.ElementTree as ET

from utvm.base.text.quoting import legal_xml
from utvm.hil.figures import shown
from utvm.hil.results import CaseResult, Outcome, RunReport

_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.ERROR: "error",
    Outcome.INFRASTRUCTURE: "error",
    # JUnit has no word for what a run did not come to.
    Outcome.NOT_RUN: "skipped",
    Outcome.SKIPPED: "skipped",
}


def render(report: RunReport) -> str:
    """Return the XML text for a run."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"hil {report.board.spoken}",
        tests=str(len(report.cases)),
        failures=str(report.count(Outcome.FAILED)),
        errors=str(report.count(Outcome.INFRASTRUCTURE) + report.count(Outcome.ERROR)),
        skipped=str(report.count(Outcome.SKIPPED) + report.count(Outcome.NOT_RUN)),
        time=f"{sum(case.duration_s for case in report.cases):.3f}",
        timestamp=report.started,
        hostname=report.environment.place.hostname,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in {
        "run_id": report.run_id,
        "commit": report.checkout.commit or "",
        "dirty": json.dumps(report.checkout.dirty),
        "board": report.board.name,
        "kind": report.board.kind,
        "probe": report.board.probe,
        "serial": report.board.serial,
        "environment": report.environment.digest,
        "lock": report.environment.lock,
        "place": report.environment.place.kind,
        "lease": json.dumps(report.environment.place.lease or {}),
        "frozen": str(report.environment.place.frozen).lower(),
        "installed": report.environment.place.installed,
        "verdict": report.verdict.value,
        "trouble": report.trouble,
        **{
            f"{model.name}, {model.executor}: {figure.name}": json.dumps(model.figures[figure.name])
            for model in report.models
            for figure in shown([model.figures])
        },
    }.items():
        ET.SubElement(properties, "property", name=name, value=value)
    for case in report.cases:
        _add(suite, case)
    return document(root)


def document(root: ET.Element) -> str:
    """Return an element as the text of a whole file, without the characters that XML cannot hold."""
    for element in root.iter():
        element.attrib = {name: legal_xml(value) for name, value in element.attrib.items()}
        element.text = legal_xml(element.text) if element.text else None
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(suite: ET.Element, case: CaseResult) -> None:
    element = ET.SubElement(
        suite,
        "testcase",
        classname=case.suite.removesuffix(".py"),
        name=case.name,
        time=f"{case.duration_s:.3f}",
    )
    kind = _ELEMENTS.get(case.outcome)
    if kind:
        child = ET.SubElement(element, kind, message=case.message)
        child.text = case.details
    elif case.message:
        ET.SubElement(element, "system-out").text = case.message
