# SPDX-License-Identifier: Apache-2.0
"""Pages of invented runs, with and without failures, as commands write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from utvm.compiler import Library
from utvm.compiler.report import RuleCount, layers_of, write_report
from utvm.drivers import BoardIdentity
from utvm.firmware import Firmware
from utvm.hil import report
from utvm.hil.nightly import report as nightly
from utvm.hil.nightly.report import BoardResult, NightlyReport
from utvm.hil.results import CaseResult, Environment, ModelResult, Outcome, RunReport, Verdict, Whereabouts
from utvm.pages import pages_of
from utvm.provenance.location import Checkout
from utvm.session.profile import profile_of, render_models
from utvm.session.profile import render as render_profile

_TOOLS = ("python", "tvm", "openocd", "gcc", "unicorn", "utvm")
_CHECKOUT = Checkout("12" * 20, True, "bench-3")
_PLACE = Whereabouts("host", "", "ef" * 32, "bench-3", dict.fromkeys(_TOOLS, "1.0"))
_LONG = "hil_tests/test_operators.py::test_an_operator_gives_what_numpy_gives[depthwise_conv2d_stride_2-{}]"


class TuneEntry(NamedTuple):
    """A candidate of a search."""

    count: int
    kind: str


def run_that_failed(firmware: Firmware, cases: int = 97) -> RunReport:
    """A run with many tests, three of which did not pass, and long names and messages."""
    confusion = tuple(tuple(39 if i == j else (i * j) % 2 for j in range(10)) for i in range(10))
    figures = {"samples": 400, "accuracy": 0.9875, "instructions": 879703, "flash_bytes": 28260, "ram_bytes": 17952}
    wrong = CaseResult(
        _LONG.format("wrong"),
        Outcome.FAILED,
        1.5,
        "assert 3 == 4\n where 3 = " + "x" * 500,
        "def test():\n>   assert 3 == 4\nE   AssertionError\n" * 400,
    )
    infrastructure = CaseResult("hil_tests/test_memory.py::test_d", Outcome.INFRASTRUCTURE, 2.0, "OpenOCD died")
    error = CaseResult("hil_tests/test_memory.py::test_e", Outcome.ERROR, 0.0, "error in the test: KeyError")
    others = (
        CaseResult(_LONG.format(i), Outcome.PASSED, 0.25)
        if i % 7
        else CaseResult(_LONG.format(i), Outcome.SKIPPED, 0.0, "not on this board: it has no FPU")
        for i in range(cases)
    )
    return RunReport(
        run_id="20261120T134513.482Z-3f9a",
        started="2026-11-20T13:45:13Z",
        checkout=_CHECKOUT,
        board=BoardIdentity("stm32f746", "virtual", "virtual ST-Link", "VIRTUAL-STM32F746-0001"),
        environment=Environment("ab" * 32, "0c" * 32, _PLACE),
        cases=(*others, wrong, infrastructure, error),
        models=tuple(
            ModelResult("9a" * 32, name, "host-driven, ahead of time", "cd" * 32, figures, firmware, confusion)
            for name in ("digits", "digits_int8", "digits_int8_graph")
        ),
        verdict=Verdict.INFRASTRUCTURE,
        trouble="infrastructure trouble in hil_tests/test_memory.py::test_d: OpenOCD died",
        statistics=(("digits over RPC", {"runs": 2, "reset_cause": "power"}),),
        duration_s=132.0,
    )


def run_that_passed() -> RunReport:
    """A small run."""
    return RunReport(
        run_id="20261120T150000.000Z-aaaa",
        started="2026-11-20T15:00:00Z",
        checkout=_CHECKOUT,
        board=BoardIdentity("host", "process", "", ""),
        environment=Environment("ab" * 32, "0c" * 32, _PLACE),
        cases=(CaseResult("hil_tests/test_health.py::test_it_answers", Outcome.PASSED, 0.5),),
        models=(),
        verdict=Verdict.PASSED,
        trouble="",
        duration_s=3.2,
    )


def write_all(folder: Path, firmware: Firmware, library: Library) -> Mapping[str, Path]:
    """Write a page of each kind below a folder; return them by name."""
    logs = folder / "logs" / "20261120T134513.482Z-3f9a" / "attached-1"
    logs.mkdir(parents=True)
    (logs / "openocd.log").write_text("Info : clock speed 2000 kHz\n" * 400 + "Error: the probe is gone\n")
    failed = run_that_failed(firmware)
    log = "".join(f"2026-11-20 13:45:14.000 INFO    utvm.hil: test {case.node}\n" for case in failed.cases)
    (logs.parent / "utvm.log").write_text(log + "2026-11-20 13:45:15.000 DEBUG   utvm.probe: it said\n" * 100)
    failed_report = report.write_report(run_that_failed(firmware), folder / "reports")
    passed_report = report.write_report(run_that_passed(), folder / "reports")
    night = nightly_report_of((run_that_failed(firmware), failed_report), (run_that_passed(), passed_report))
    counts = [1000 + 700 * number for number, _ in enumerate(library.calls)]
    profile = profile_of(library, "stm32f746, virtual", "instructions", counts)
    (folder / "profile.html").write_text(render_profile(profile, library))
    views = [layers_of(library, f"{library.name} on {board}") for board in ("microbit", "stm32f746", "host")]
    (folder / "compare.html").write_text(render_models("three boards", views))
    entries = [TuneEntry(20_000 - 700 * number, "kernel" if number % 3 else "schedule") for number in range(40)]
    search = {"makes": "conv1", "before": 9_000, "best": 1_000, "entries": entries}
    tune = pages_of("utvm.cli").get_template("tune.html.j2")
    values = {"title": "digits", "board": "stm32f746", "unit": "instructions"}
    (folder / "tune.html").write_text(tune.render(searches=[search], **values))
    rules = [RuleCount("8.14", 5, 0, "restrict is needed"), RuleCount("11.4", 0, 7, "registers have addresses")]
    return {
        "failed": failed_report / "index.html",
        "passed": passed_report / "index.html",
        "nightly": nightly.write_report(night, folder / "nightly") / "index.html",
        "compile": write_report(library, folder, rules)[1],
        "profile": folder / "profile.html",
        "compared": folder / "compare.html",
        "tuned": folder / "tune.html",
    }


def nightly_report_of(*runs: tuple[RunReport, Path | None]) -> NightlyReport:
    """A nightly report of these runs, with the folders of their reports."""
    results = tuple(
        BoardResult(
            label=run.board.name,
            board=run.board,
            place="host",
            suites=(),
            verdict=Verdict(run.verdict.value),
            reason=run.trouble,
            duration_s=67.0,
            suites_s=60.0,
            content=run.as_json(),
            source=source,
        )
        for run, source in runs
    )
    run_id, started = "20261120T010000.000Z-ffff", "2026-11-20T01:00:00Z"
    return NightlyReport(run_id, started, _CHECKOUT, 2, 3700.0, results, interrupted=False)
