# SPDX-License-Identifier: Apache-2.0
"""The files of a report: content, completeness, and escaping of any text of a test."""

import copy
import dataclasses
import datetime
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hil.page import Page
from utvm.drivers import BoardIdentity
from utvm.errors import ConfigError
from utvm.firmware import Firmware, Section
from utvm.hil import html, report, schemas
from utvm.hil.results import CaseResult, Environment, ModelResult, Outcome, RunReport, Verdict, Whereabouts
from utvm.pages import pages_of
from utvm.provenance.location import Checkout

_SCHEMA = json.loads(schemas.REPORT.read_text())
_TOOLS = ("python", "tvm", "openocd", "gcc", "unicorn", "utvm")
_FIGURES = {"samples": 100, "accuracy": 0.98, "instructions": 1234, "flash_bytes": 1536, "ram_bytes": 768}
_HOSTILE = '<script>alert("x")</script> & \x00\x1b[31m \ud800 ]]> {{ 7*7 }}'


@pytest.fixture
def summary(small_firmware: Firmware) -> RunReport:
    confusion = ((40, 2), (0, 58))
    return RunReport(
        run_id=report.new_run_id(datetime.datetime.now(datetime.timezone.utc)),
        started="2026-11-20T13:45:13Z",
        checkout=Checkout("12" * 20, True, "bench-3"),
        board=BoardIdentity("pynq-z1:memory=ddr", "virtual", "virtual ST-Link", "V-1"),
        environment=Environment(
            "ab" * 32, "0c" * 32, Whereabouts("host", "", "ef" * 32, "bench-3", dict.fromkeys(_TOOLS, "1.0"))
        ),
        cases=(
            CaseResult("hil_tests/test_flash.py::test_a", Outcome.PASSED, 0.5),
            CaseResult("hil_tests/test_flash.py::test_b[x-1]", Outcome.FAILED, 0.25, "not equal", "a trace"),
            CaseResult("hil_tests/test_memory.py::test_c", Outcome.SKIPPED, 0.0, "not here"),
            CaseResult("hil_tests/test_memory.py::test_d", Outcome.INFRASTRUCTURE, 0.0, "OpenOCD died"),
        ),
        models=(ModelResult("9a" * 32, "twice", "host-driven", "cd" * 32, _FIGURES, small_firmware, confusion),),
        verdict=Verdict.INFRASTRUCTURE,
        trouble="OpenOCD died",
        statistics=(("twice over RPC", {"runs": 2, "reset_cause": "power"}),),
    )


def test_latest_links_to_the_report(summary: RunReport, tmp_path: Path) -> None:
    directory = report.write_report(summary, tmp_path)
    assert directory == tmp_path / summary.run_id
    assert sorted(path.name for path in directory.iterdir()) == ["index.html", "junit.xml", "report.json"]
    assert (tmp_path / "latest").resolve() == directory.resolve()
    assert not (tmp_path / "latest").readlink().is_absolute()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["latest", summary.run_id])


def test_report_json_has_the_documented_content(summary: RunReport, tmp_path: Path, small_firmware: Firmware) -> None:
    content = json.loads((report.write_report(summary, tmp_path) / "report.json").read_text())
    assert content == {
        "schema_version": 5,
        "run_id": summary.run_id,
        "started": "2026-11-20T13:45:13Z",
        "source": {"commit": "12" * 20, "dirty": True},
        "board": {
            "id": "pynq-z1:memory=ddr",
            "name": "pynq-z1",
            "settings": {"memory": "ddr"},
            "kind": "virtual",
            "probe": "virtual ST-Link",
            "serial": "V-1",
        },
        "environment": {
            "digest": "ab" * 32,
            "lock": "0c" * 32,
            "place": {
                "kind": "host",
                "hostname": "bench-3",
                "frozen": False,
                "environment": "",
                "installed": "ef" * 32,
                "tools": dict.fromkeys(_TOOLS, "1.0"),
                "lease": None,
            },
        },
        "tests": [
            {
                "id": "flash::test_a",
                "node": "hil_tests/test_flash.py::test_a",
                "outcome": "passed",
                "duration_s": 0.5,
                "message": "",
            },
            {
                "id": "flash::test_b[x-1]",
                "node": "hil_tests/test_flash.py::test_b[x-1]",
                "outcome": "failed",
                "duration_s": 0.25,
                "message": "not equal",
            },
            {
                "id": "memory::test_c",
                "node": "hil_tests/test_memory.py::test_c",
                "outcome": "skipped",
                "duration_s": 0.0,
                "message": "not here",
            },
            {
                "id": "memory::test_d",
                "node": "hil_tests/test_memory.py::test_d",
                "outcome": "infrastructure",
                "duration_s": 0.0,
                "message": "OpenOCD died",
            },
        ],
        "models": [
            {
                "id": "9a" * 32,
                "name": "twice",
                "executor": "host-driven",
                "outputs_sha256": "cd" * 32,
                "samples": 100,
                "accuracy": 0.98,
                "instructions": 1234,
                "image_sha256": hashlib.sha256(small_firmware.elf.read_bytes()).hexdigest(),
                "flash_bytes": 1536,
                "ram_bytes": 768,
            }
        ],
        "statistics": [{"name": "twice over RPC", "values": {"runs": 2, "reset_cause": "power"}}],
        "verdict": "infrastructure",
        "trouble": "OpenOCD died",
        "exit_code": 3,
    }


def _rename_unit(content: dict[str, Any]) -> None:
    content["models"][0]["cycles"] = content["models"][0].pop("instructions")


def _claim_a_pass(content: dict[str, Any]) -> None:
    content |= {"verdict": "passed", "exit_code": 0}


def _claim_an_empty_pass(content: dict[str, Any]) -> None:
    content |= {"verdict": "passed", "exit_code": 0, "tests": []}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.pop("environment"),
        lambda content: content.update(extra=1),
        lambda content: content.update(exit_code=0),
        lambda content: content["board"].update(kind="simulated"),
        lambda content: content["tests"][0].update(outcome="broken"),
        lambda content: content["models"][0].update(cycles=1),
        lambda content: content["models"][0].pop("instructions"),
        lambda content: content["models"][0].update(accuracy=98),
        lambda content: content["models"][0].update(extra=98),
        lambda content: content["environment"].update(digest="?"),
        lambda content: content["statistics"][0]["values"].update(cycles=1),
        lambda content: content["source"].update(commit="main"),
        lambda content: content["environment"]["place"].update(kind="cloud"),
        lambda content: content["environment"]["place"].update(frozen=True),
        lambda content: content["environment"]["place"].update(environment="ab" * 32),
        _rename_unit,
        _claim_a_pass,
        _claim_an_empty_pass,
    ],
)
def test_schema_refuses_invalid_content(summary: RunReport, damage: Callable[[dict[str, Any]], object]) -> None:
    content = copy.deepcopy(summary.as_json())
    jsonschema.validate(content, _SCHEMA)
    damage(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, _SCHEMA)


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(_SCHEMA)


def test_bad_report_leaves_nothing(summary: RunReport, tmp_path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        report.write_report(dataclasses.replace(summary, started="yesterday"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_report_leaves_nothing(summary: RunReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: str, _flags: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "open_regular", fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        report.write_report(summary, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_latest_always_links_to_a_complete_report(
    summary: RunReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report.write_report(summary, tmp_path)
    replace, targets = Path.replace, []

    def check_and_replace(source: Path, target: Path) -> Path:
        targets.append(target.resolve())
        second = tmp_path / source.readlink()
        assert {path.name for path in second.iterdir()} == set(report.FILES)
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", check_and_replace)
    second = report.write_report(dataclasses.replace(summary, run_id="29990101T000000.000Z-0000"), tmp_path)
    assert targets == [first.resolve()]
    assert (tmp_path / "latest").resolve() == second.resolve()


@given(st.datetimes(min_value=datetime.datetime(2000, 1, 1)), st.timedeltas(datetime.timedelta(milliseconds=1)))
def test_run_ids_sort_by_time(start: datetime.datetime, gap: datetime.timedelta) -> None:
    first = start.replace(tzinfo=datetime.timezone.utc)
    try:
        second = first + gap
    except OverflowError:
        return
    assert report.new_run_id(first) < report.new_run_id(second)


def test_runs_of_the_same_moment_have_different_ids() -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    assert len({report.new_run_id(now) for _ in range(20)}) > 15


def test_junit_separates_infrastructure_from_failure(summary: RunReport) -> None:
    suite = ET.fromstring(report.render_junit(summary)).find("testsuite")
    assert suite is not None
    kinds = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert kinds == {"test_a": [], "test_b[x-1]": ["failure"], "test_c": ["skipped"], "test_d": ["error"]}
    assert {case.get("classname") for case in suite.iter("testcase")} == {"test_flash", "test_memory"}
    properties = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert properties["kind"] == "virtual"
    assert properties["verdict"] == "infrastructure"
    assert (properties["environment"], properties["place"]) == ("ab" * 32, "host")
    assert (properties["frozen"], properties["installed"]) == ("false", "ef" * 32)
    assert (properties["commit"], properties["dirty"]) == ("12" * 20, "true")
    assert properties["twice, host-driven: instructions"] == "1234"
    assert suite.get("hostname") == "bench-3"


def test_page_has_verdict_board_and_environment(summary: RunReport, small_firmware: Firmware) -> None:
    page = Page(html.render_page(summary))
    assert page.open == []
    text = re.sub(r"\s+", " ", page.text)
    for expected in (
        "No verdict: infrastructure trouble",
        "virtual board",
        "instructions, not time",
        "1,234",
        "98.00 %",
        "OpenOCD died",
        "not equal",
        "virtual ST-Link",
        "ab" * 32,
        "host, not frozen",
        f"commit {'12' * 20}, with changes",
        "bench-3",
        "0c" * 32,
        "ef" * 32,
        hashlib.sha256(small_firmware.elf.read_bytes()).hexdigest()[:12],
    ):
        assert expected in text
    assert page.tags.count("svg") == 1 + len(html.memory_map(small_firmware))


def test_page_names_a_frozen_environment(summary: RunReport) -> None:
    place = dataclasses.replace(summary.environment.place, kind="docker", environment="cd" * 32)
    page = Page(html.render_page(dataclasses.replace(summary, environment=Environment("ab" * 32, "0c" * 32, place))))
    assert f"docker, frozen: exactly the packages of the lock, {'cd' * 32}" in re.sub(r"\s+", " ", page.text)


def test_page_is_self_contained(summary: RunReport) -> None:
    page = Page(html.render_page(summary))
    assert page.is_self_contained()
    assert page.links == ["#main"]
    assert "url(" not in html.render_page(summary)


def test_text_from_a_test_stays_text(summary: RunReport, tmp_path: Path) -> None:
    case = CaseResult(f"test_x.py::test[{_HOSTILE}]", Outcome.FAILED, 0.0, _HOSTILE, _HOSTILE)
    hostile = dataclasses.replace(summary, cases=(case,), trouble=_HOSTILE)
    directory = report.write_report(hostile, tmp_path)
    page = Page((directory / "index.html").read_text(encoding="utf-8"))
    assert page.is_self_contained()
    assert '<script>alert("x")</script>' in page.text
    assert "49" not in page.text.split("What went wrong")[1].split("Models")[0]
    failure = ET.parse(directory / "junit.xml").getroot().find(".//failure")
    assert failure is not None
    assert '<script>alert("x")</script>' in (failure.get("message") or "")
    assert json.loads((directory / "report.json").read_text())["tests"][0]["message"].startswith("<script>")


def test_sections_are_drawn_in_their_regions(small_firmware: Firmware) -> None:
    bars = {bar.name: bar for bar in html.memory_map(small_firmware)}
    # Every region once, in address order; the flash's second bus is left out.
    regions = sorted(small_firmware.board.memory, key=lambda region: region.address)
    assert list(bars) == [region.name for region in regions if region.name != "flash-itcm"]
    for section in small_firmware.sections:
        (bar,) = (bar for bar in bars.values() if bar.address <= section.address < bar.address + bar.size)
        assert section.name in {mark.name for mark in bar.marks}
        assert all(mark.x + mark.width <= 720.01 for mark in bar.marks)
    assert bars["flash"].used == small_firmware.flash_bytes


def test_section_is_drawn_to_scale_in_both_regions(small_firmware: Firmware) -> None:
    image = dataclasses.replace(small_firmware)
    # A quarter of 240 KiB, from the middle on; its initial values begin at three quarters of the flash.
    vars(image)["sections"] = (Section(".data", 0x20010000 + 120 * 1024, 60 * 1024, 0x080C0000, True),)
    bars = {bar.name: bar for bar in html.memory_map(image)}
    (loaded,) = bars["sram1"].marks
    assert (loaded.x, loaded.width) == (pytest.approx(360), pytest.approx(180))
    (stored,) = bars["flash"].marks
    assert (stored.x, stored.width) == (pytest.approx(540), pytest.approx(720 * 60 / 1024))
    assert stored.colour == loaded.colour
    assert bars["sram1"].share == pytest.approx(0.25)


def test_confusion_cells_are_at_label_and_prediction() -> None:
    pictures: Any = pages_of("utvm.hil").get_template("pictures.html.j2").module
    text = " ".join(str(pictures.confusion(SimpleNamespace(name="m", confusion=((3, 1), (0, 0))))).split())
    cells = re.findall(r'<g class="(\w+)"><title>label (\d), predicted (\d): (\d) samples</title>', text)
    assert cells == [("right", "0", "0", "3"), ("wrong", "0", "1", "1")]
    assert "3 correct of 4 samples" in text
