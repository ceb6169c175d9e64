# SPDX-License-Identifier: Apache-2.0
"""Invented reports of runs, and projects with a history of them."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from tests.pages.samples import run_that_passed
from utvm.drivers import BoardIdentity
from utvm.hil.results import CaseResult, Outcome, decide
from utvm.provenance.location import Checkout

GOOD, BAD, WORSE = "aa" * 20, "bb" * 20, "cc" * 20
Figures = Mapping[str, int | float]


def report_of(
    day: int,
    commit: str = GOOD,
    *,
    tests: Mapping[str, str] | None = None,
    models: Mapping[str, Figures] | None = None,
    board: str = "stm32f746",
    kind: str = "virtual",
    outputs: str = "cd",
    hour: int = 1,
) -> dict[str, Any]:
    """The content of report.json for a run on a day of November."""
    cases = tuple(
        CaseResult(f"hil/test_it.py::{name}", Outcome(outcome), 0.25, "" if outcome == "passed" else "it said 3")
        for name, outcome in (tests or {"test_a": "passed"}).items()
    )
    verdict, trouble = decide(cases, trouble="", interrupted=False)
    run = replace(
        run_that_passed(),
        run_id=f"202611{day:02}T{hour:02}0000.000Z-{zlib.crc32((board + kind).encode()) % 65536:04x}",
        started=f"2026-11-{day:02}T{hour:02}:00:00Z",
        checkout=Checkout(commit, False, "bench-3"),
        board=BoardIdentity(board, kind, "", ""),
        cases=cases,
        verdict=verdict,
        trouble=trouble,
    )
    figures = {"samples": 4, "accuracy": 0.5, "flash_bytes": 12432, "ram_bytes": 11280}
    unit = {"virtual": "instructions", "physical": "cycles", "process": "ns"}[kind]
    entries = [
        {
            "id": None,
            "name": name,
            "executor": "host-driven",
            "outputs_sha256": outputs * 32,
            "image_sha256": "ef" * 32,
            **figures,
            unit: 1000,
            **figures_of_model,
        }
        for name, figures_of_model in (models or {}).items()
    ]
    return {**run.as_json(), "models": entries}


def write(folder: Path, *reports: Mapping[str, Any]) -> None:
    """Write reports like runs."""
    for report in reports:
        folder_of_run = folder / "build" / "reports" / str(report["run_id"])
        folder_of_run.mkdir(parents=True)
        (folder_of_run / "report.json").write_text(json.dumps(report))


Query = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a history, as the current folder."""
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def query(project: Path) -> Query:
    """Import reports, query the history, and return its JSON."""

    def run(*words: str, reports: tuple[Mapping[str, Any], ...] = ()) -> Any:
        write(project, *reports)
        if reports:
            completed = inv("history.import", "build/reports")
            assert completed.returncode == 0, completed.stderr
            assert " 0 reports left out" in completed.stdout, completed.stdout
        completed = inv(*words, "--json")
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return run
