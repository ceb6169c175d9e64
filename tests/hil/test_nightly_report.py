# SPDX-License-Identifier: Apache-2.0
"""The combined report, from possible results: its content, completeness and escaping."""

import copy
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.hil.page import Page
from tests.pages.samples import nightly_report_of, run_that_passed
from utvm.drivers import BoardIdentity
from utvm.hil import report as single
from utvm.hil import schemas
from utvm.hil.nightly import load, report
from utvm.hil.nightly.display import NightlyDisplay
from utvm.hil.nightly.report import BoardResult, NightlyReport, last_line
from utvm.hil.results import CaseResult, Environment, Outcome, RunReport, Verdict, Whereabouts, decide
from utvm.paths import ROOT
from utvm.provenance.location import Checkout

_SCHEMA = json.loads(schemas.NIGHTLY.read_text())
_HOSTILE = '<script>alert("x")</script> & \x00\x1b[31m \ud800 ]]> {{ 7*7 }}'
_TOOLS = ("python", "tvm", "openocd", "gcc", "unicorn", "utvm")
_CHECKOUT = Checkout("12" * 20, False, "bench-3")
_RUN = "20261120T134513.482Z-3f9a"


def _result(folder: Path, label: str, *outcomes: Outcome, **changes: Any) -> BoardResult:
    """Return the result of a board, with the report of its run."""
    cases = tuple(
        CaseResult(f"hil_tests/test_x.py::test_{i}", outcome, 1.5, outcome.value) for i, outcome in enumerate(outcomes)
    )
    trouble = changes.pop("trouble", "")
    verdict, why = decide(cases, trouble=trouble, interrupted=False)
    run = RunReport(
        run_id=_RUN,
        started="2026-11-20T13:45:13Z",
        checkout=_CHECKOUT,
        board=BoardIdentity(label, "virtual", "virtual ST-Link", ""),
        environment=Environment(
            "ab" * 32, "0c" * 32, Whereabouts("host", "", "ef" * 32, "bench-3", dict.fromkeys(_TOOLS, "1.0"))
        ),
        cases=cases,
        models=(),
        verdict=verdict,
        trouble=why,
    )
    values = {
        "label": label,
        "board": BoardIdentity(label, "virtual"),
        "place": "host",
        "suites": (),
        "verdict": Verdict(verdict.value),
        "reason": why or ("" if verdict is Verdict.PASSED else "test_x.py::test_0: wrong"),
        "duration_s": 67.0,
        "suites_s": 60.0,
        "content": run.as_json(),
        "source": single.write_report(run, folder / label),
    }
    return BoardResult(**{**values, **changes})


def _not_run(label: str) -> BoardResult:
    return BoardResult(label, BoardIdentity(label, "auto"), "host", (), Verdict.NOT_RUN, "not run: interrupted")


def _nightly_report(*results: BoardResult, interrupted: bool = False) -> NightlyReport:
    return NightlyReport(_RUN, "2026-11-20T13:45:13Z", _CHECKOUT, 2, 100.0, results, interrupted)


def _passed_board(folder: Path) -> BoardResult:
    return _result(folder, "good", Outcome.PASSED, Outcome.SKIPPED)


def _failed_board(folder: Path) -> BoardResult:
    return _result(folder, "wrong", Outcome.PASSED, Outcome.FAILED)


def _bad(folder: Path) -> BoardResult:
    return _result(
        folder, "silent", Outcome.SKIPPED, trouble="no such probe", verdict=Verdict.BAD, reason="no such probe"
    )


def test_worst_outcome_decides(tmp_path: Path) -> None:
    good, wrong, bad = _passed_board(tmp_path), _failed_board(tmp_path), _bad(tmp_path)
    for results, verdict, code in (
        ((good,), Verdict.PASSED, 0),
        ((good, wrong), Verdict.FAILED, 1),
        ((wrong, _result(tmp_path, "empty", Outcome.SKIPPED)), Verdict.ERROR, 2),
        ((wrong, bad, good), Verdict.INFRASTRUCTURE, 3),
        ((good, _not_run("late")), Verdict.INFRASTRUCTURE, 3),
    ):
        assert (_nightly_report(*results).verdict, _nightly_report(*results).verdict.exit_code) == (verdict, code)
    assert _nightly_report(good, interrupted=True).verdict is Verdict.INTERRUPTED


def test_last_line_names_boards_that_did_not_pass(tmp_path: Path) -> None:
    nightly_report = _nightly_report(_passed_board(tmp_path), _failed_board(tmp_path), _bad(tmp_path))
    assert last_line(nightly_report) == (
        "NO VERDICT (infrastructure trouble): 3 boards, 1 passed, 1 failed, 1 bad (wrong failed, silent bad); "
        "exit code 3"
    )


def test_report_contains_those_of_the_boards(tmp_path: Path) -> None:
    root = tmp_path / "nightly"
    directory = report.write_report(_nightly_report(_passed_board(tmp_path), _bad(tmp_path), _not_run("late")), root)
    assert sorted(path.name for path in root.iterdir()) == [_RUN, "latest"]
    assert (root / "latest").resolve() == directory.resolve()
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()) == sorted(
        [
            *(f"{label}/{file}" for label in ("good", "silent") for file in single.FILES),
            *("index.html", "junit.xml", "nightly.json"),
        ]
    )
    content = json.loads((directory / "nightly.json").read_text())
    jsonschema.validate(content, _SCHEMA)
    assert [entry["verdict"] for entry in content["boards"]] == ["passed", "bad", "not run"]
    assert content["boards"][0]["counts"] == {
        "passed": 1,
        "failed": 0,
        "skipped": 1,
        "not run": 0,
        "error": 0,
        "infrastructure": 0,
    }
    for entry in content["boards"]:
        assert (entry["report"] == "") == (entry["label"] == "late")
        assert not entry["report"] or (directory / entry["report"]).is_file()


def test_report_is_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly_report = _nightly_report(_passed_board(tmp_path))

    def fail(_report: NightlyReport, _root: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "render_html", fail)
    with pytest.raises(Exception, match="No space left on device"):
        report.write_report(nightly_report, tmp_path / "nightly")
    assert list((tmp_path / "nightly").iterdir()) == []


def test_junit_has_one_suite_for_each_board(tmp_path: Path) -> None:
    no_tests = _result(tmp_path, "empty", Outcome.SKIPPED)
    nightly_report = _nightly_report(
        _passed_board(tmp_path), _failed_board(tmp_path), _bad(tmp_path), no_tests, _not_run("late")
    )
    suites = ET.fromstring(report.render_junit(nightly_report)).findall("testsuite")
    by_suite = {}
    for suite in suites:
        kinds = [child.tag for case in suite.iter("testcase") for child in case if child.tag != "system-out"]
        for counter, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(counter, "")) == kinds.count(kind)
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        by_suite[suite.get("name")] = sorted(kinds)
    assert by_suite == {
        "good": ["skipped"],
        "wrong": ["failure"],
        "silent": ["error", "skipped"],
        "empty": ["error", "skipped"],
        "late": ["error"],
    }


def test_page_marks_virtual_boards_and_links_them(tmp_path: Path) -> None:
    nightly_report = _nightly_report(_passed_board(tmp_path), _bad(tmp_path), _not_run("late"))
    page = Page(report.render_html(nightly_report, tmp_path))
    assert page.open == []
    assert page.links == ["#main", "silent/index.html", "good/index.html", "silent/index.html"]
    text = re.sub(r"\s+", " ", page.text)
    for expected in (
        "No verdict: infrastructure trouble",
        "no such probe",
        "not run: interrupted",
        "1:07",
        "exit code 3",
        "VIRTUAL",
    ):
        assert expected in text
    assert page.is_self_contained()


def test_text_from_a_board_stays_text(tmp_path: Path) -> None:
    hostile = dataclasses.replace(_bad(tmp_path), reason=_HOSTILE, content=None, source=None)
    directory = report.write_report(_nightly_report(hostile), tmp_path / "nightly")
    page = Page((directory / "index.html").read_text(encoding="utf-8"))
    assert page.is_self_contained()
    assert '<script>alert("x")</script>' in page.text
    error = ET.parse(directory / "junit.xml").getroot().find(".//error")
    assert error is not None
    assert '<script>alert("x")</script>' in (error.get("message") or "")


def _claim_a_pass(content: dict[str, Any]) -> None:
    content |= {"verdict": "passed", "exit_code": 0}


@pytest.mark.parametrize(
    "damage",
    [
        _claim_a_pass,
        lambda content: content.pop("jobs"),
        lambda content: content.update(boards=[]),
        lambda content: content.update(exit_code=1),
        lambda content: content["boards"][1].update(verdict="passed", exit_code=0),
        lambda content: content["boards"][1].update(exit_code=1),
        lambda content: content["boards"][1].update(reason=""),
        lambda content: content["boards"][0].update(kind="simulated"),
        lambda content: content["boards"][0]["counts"].update(passed=0),
        lambda content: content["boards"][0].update(
            models=[{"name": "m", "flash_bytes": 1, "ram_bytes": 1, "cycles": 1}]
        ),
    ],
)
def test_schema_refuses_invalid_content(tmp_path: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    content = copy.deepcopy(_nightly_report(_passed_board(tmp_path), _bad(tmp_path)).as_json())
    jsonschema.Draft202012Validator.check_schema(_SCHEMA)
    jsonschema.validate(content, _SCHEMA)
    damage(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, _SCHEMA)


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_log_has_a_line_every_ten_seconds() -> None:
    output = io.StringIO()
    display = NightlyDisplay(output)
    for second in range(1, 31):
        display.show_progress(float(second), ["host"])
    times = [line.split(" after ")[1] for line in output.getvalue().splitlines()]
    assert times == ["0:09; running: host", "0:18; running: host", "0:27; running: host"]
    night = nightly_report_of((run_that_passed(), None), (run_that_passed(), None))
    display.begin("night", load(ROOT / "nightly.yaml")[:2], 1)
    display.finish(night.boards[0])
    display.show_progress(200.0, ["microbit"])
    assert output.getvalue().splitlines()[-1] == "1 of 2 boards after 3:20, about 3:20 left; running: microbit"


@pytest.mark.parametrize("columns", [60, 80])
def test_terminal_shows_one_line_whose_names_are_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = _Screen()
    display = NightlyDisplay(screen)
    display.begin("night", load(ROOT / "nightly.yaml")[:2], 1)
    display.finish(nightly_report_of((run_that_passed(), None)).boards[0])
    for second in (200.0, 201.0):
        display.show_progress(second, ["microbit", "mps2-an385", "mps2-an505", "nrf52840dk", "stm32f746"])
    shown = re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue()))
    lines = [line for line in shown if " boards after " in line]
    assert [line[:47] for line in lines] == [f"1 of 2 boards after 3:2{n}, about 3:2{n} left; runn" for n in (0, 1)]
    assert max(map(len, lines)) <= columns and lines[0].endswith("…")
