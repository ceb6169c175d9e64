# SPDX-License-Identifier: Apache-2.0
"""Reports of runs that are made up, and projects that remember them."""

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
    """What report.json holds of a run on a day of November."""
    cases = tuple(
        CaseResult(f"hil/test_it.py::{name}", Outcome(said), 0.25, "" if said == "passed" else "it said 3")
        for name, said in (tests or {"test_a": "passed"}).items()
    )
    verdict, trouble = decide(cases, trouble="", interrupted=False)
    made = replace(
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
            **each,
        }
        for name, each in (models or {}).items()
    ]
    return {**made.as_json(), "models": entries}


def write(folder: Path, *reports: Mapping[str, Any]) -> None:
    """Write reports as runs do."""
    for each in reports:
        place = folder / "build" / "reports" / str(each["run_id"])
        place.mkdir(parents=True)
        (place / "report.json").write_text(json.dumps(each))


Asked = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a history; it is the current folder."""
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(project: Path) -> Asked:
    """Import reports, ask the history, and return its JSON."""

    def ask(*words: str, reports: tuple[Mapping[str, Any], ...] = ()) -> Any:
        write(project, *reports)
        if reports:
            done = inv("history.import", "build/reports")
            assert done.returncode == 0, done.stderr
            assert " 0 reports left out" in done.stdout, done.stdout
        done = inv(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
