# SPDX-License-Identifier: Apache-2.0
"""A figure that is added in one place appears in all outputs."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from tests.hil.page import Page
from utvm.drivers import BoardIdentity
from utvm.firmware import Firmware
from utvm.hil import figures, html, report, schemas
from utvm.hil.display import Display
from utvm.hil.figures import Figure, summarise
from utvm.hil.nightly import report as nightly
from utvm.hil.nightly.report import BoardResult, NightlyReport
from utvm.hil.results import CaseResult, Environment, Outcome, RunReport, Verdict, Whereabouts
from utvm.provenance.location import Checkout
from utvm.session import RunResult

_CODE = Figure(
    "code_bytes",
    "of code",
    "Machine code of each operator.",
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    lambda measured: {library.name: 7 for library in measured.firmware.libraries},
    lambda layers: f"{sum(layers.values())} bytes",
)
_TOOLS = ("python", "tvm", "openocd", "gcc", "unicorn", "utvm")


@pytest.fixture
def run(small_firmware: Firmware, monkeypatch: pytest.MonkeyPatch) -> RunReport:
    """The report of a run, with the figure in the table."""
    monkeypatch.setattr(figures, "FIGURES", (*figures.FIGURES, _CODE))
    monkeypatch.setattr(schemas, "FIGURES", figures.FIGURES)
    result = RunResult((np.array([[0, 1]], np.float32),), 30, "instructions", 0)
    return RunReport(
        run_id="20261120T134513.482Z-3f9a",
        started="2026-11-20T13:45:13Z",
        checkout=Checkout(None, None, "here"),
        board=BoardIdentity("stm32f746", "virtual", "virtual ST-Link", ""),
        environment=Environment(
            "ab" * 32, "0c" * 32, Whereabouts("host", "", "ef" * 32, "here", dict.fromkeys(_TOOLS, "1.0"))
        ),
        cases=(CaseResult("hil_tests/test_flash.py::test_a", Outcome.PASSED, 0.5),),
        models=(summarise("twice", small_firmware, [result], executor="host-driven"),),
        verdict=Verdict.PASSED,
        trouble="",
    )


def test_figure_is_in_every_file_of_a_report(run: RunReport, tmp_path: Path) -> None:
    directory = report.write_report(run, tmp_path)
    (model,) = json.loads((directory / "report.json").read_text())["models"]
    assert model["code_bytes"] == {"twice": 7}
    page = Page((directory / "index.html").read_text())
    assert "of code" in page.text
    assert "7 bytes" in page.text
    properties = {
        entry.get("name"): entry.get("value") for entry in ET.fromstring(report.render_junit(run)).iter("property")
    }
    assert properties["twice, host-driven: code_bytes"] == '{"twice": 7}'
    assert html.render_page(run).count("Machine code of each operator.") == 1


def test_figure_is_in_the_schema(run: RunReport) -> None:
    content = run.as_json()
    schemas.check_schema(content, schemas.REPORT)
    content["models"][0]["code_bytes"] = -1  # type: ignore[index]
    with pytest.raises(jsonschema.ValidationError):
        schemas.check_schema(content, schemas.REPORT)
    del content["models"][0]["code_bytes"]  # type: ignore[attr-defined]
    with pytest.raises(jsonschema.ValidationError):
        schemas.check_schema(content, schemas.REPORT)
    assert "Machine code of each operator." in schemas.schema_text(schemas.NIGHTLY)


def test_figure_is_printed(run: RunReport, tmp_path: Path) -> None:
    assert figures.figures_line(run.models[0].figures).endswith(" B RAM, 7 bytes of code")
    with (tmp_path / "out").open("w") as out:
        Display(out).close(run, None)
    output = (tmp_path / "out").read_text()
    assert "of code" in output
    assert "7 bytes" in output


def test_figure_is_in_the_nightly_report(run: RunReport, tmp_path: Path) -> None:
    result = BoardResult(
        label="a",
        board=BoardIdentity("stm32f746", "virtual"),
        place="host",
        suites=(),
        verdict=Verdict.PASSED,
        reason="",
        content=run.as_json(),
        source=report.write_report(run, tmp_path / "one"),
    )
    night = NightlyReport(run.run_id, run.started, run.checkout, 1, 1.0, (result,), interrupted=False)
    directory = nightly.write_report(night, tmp_path / "all")
    assert "7 bytes" in Page((directory / "index.html").read_text()).text
    (board,) = json.loads((directory / "nightly.json").read_text())["boards"]
    assert board["models"][0]["code_bytes"] == {"twice": 7}
