# SPDX-License-Identifier: Apache-2.0
"""A fault in a run leads to no false statement and leaves nothing behind: a sample, and a thousand nightly."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.environment import own_engine
from tests.environment.machine import real
from tests.faults import page
from tests.faults.campaign import draw
from tests.faults.judge import ending_of
from tests.faults.suite_run import Outcome
from tests.faults.table import endings, rows
from tests.processes import may_make_mounts
from utvm.paths import ROOT

# This seed draws several kinds, none of which waits for a hanging process.
_SAMPLE_SEED = 2506
_PASSED = "PASSED on a PROCESS host: 4 passed; exit code 0"
_NO_VERDICT = "NO VERDICT (infrastructure) on a PROCESS host: 4 not run; exit code 3"


def _outcome(code: int | None, output: str, verdict: str = "", *outcomes: str) -> Outcome:
    tests = [{"id": f"right::test_doubles[{number}]", "outcome": outcome} for number, outcome in enumerate(outcomes)]
    return Outcome(code, output, {"verdict": verdict, "tests": tests} if verdict else None, (), 1.0)


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (_outcome(0, _PASSED, "passed", "passed"), "answer"),
        (_outcome(3, _NO_VERDICT, "infrastructure", "passed", "infrastructure", "not run"), "none"),
        (_outcome(-9, "stm32f746, run 2026", ""), "killed"),
        (_outcome(-9, "", ""), "unbegun"),
        # Errors:
        (_outcome(-11, "", ""), "died of signal 11"),
        (_outcome(None, "", ""), "hangs"),
        (_outcome(3, "", ""), "the report is lost"),
        (_outcome(0, _PASSED), "exit code 0 with the report missing"),
        (_outcome(1, "", ""), "exit code 1"),
        (_outcome(3, _PASSED, "infrastructure"), "says passed and reports infrastructure"),
        (_outcome(0, _PASSED, "passed", "passed", "not run"), "reports passed without an answer of each test"),
        (_outcome(3, _NO_VERDICT, "infrastructure", "failed"), "reports failed of a test that is passed"),
        (_outcome(1, "FAILED on a PROCESS host: 1", "failed"), "says failed of a suite that is passed"),
        (_outcome(3, "Traceback (most recent call last):\n", "infrastructure"), "traceback"),
    ],
)
def test_false_statements_are_found(outcome: Outcome, ending: str) -> None:
    assert ending_of(outcome, "right", signals=(9,)) == ending


def test_failed_suite_that_passes_is_an_error() -> None:
    assert ending_of(_outcome(0, _PASSED, "passed"), "wrong") == "says passed of a suite that is failed"


def test_table_of_endings_is_complete() -> None:
    table = rows()
    assert {ending for row in table for ending in row.may} == set(endings())
    assert {draw(1, number, table).row.name for number in range(3000)} == {row.name for row in table}
    # The verdict is known: only a signal to the command itself allows an exit code other than 3 and the true one.
    assert all(row.what == "command" or row.actions == ("hang up",) for row in table if "killed" in row.may)


def test_campaign_is_repeatable() -> None:
    table = rows()
    assert [draw(5, number, table) for number in range(50)] == [draw(5, number, table) for number in range(50)]


def test_page_is_up_to_date() -> None:
    """``python -m tests.faults page RESULTS`` writes it."""
    assert page.PAGE.read_text(encoding="utf-8").startswith(page.head())


def _campaign(out: Path, *words: str) -> Sequence[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.faults", "run", "--out", str(out), *words]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()][1:]


@pytest.mark.slow
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
def test_sample_has_no_red_row_and_is_continued(tmp_path: Path) -> None:
    words = ("--boards", "host", "--every", "4", "--seed", str(_SAMPLE_SEED))
    out = tmp_path / "results.jsonl"
    first = _campaign(out, *words, "--count", "2")
    assert [result["number"] for result in first] == [0, 1]
    results = _campaign(out, *words, "--count", "8")
    assert [result["number"] for result in results] == list(range(8))
    assert results[:2] == first
    assert sum(result["landed"] for result in results) >= 4


@pytest.mark.nightly
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
def test_two_thousand_limited_starts_have_no_red_row(tmp_path: Path) -> None:
    results = _campaign(tmp_path / "results.jsonl", "--count", "2000", "--places", "start")
    assert len(results) == 2000


@pytest.mark.nightly
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
def test_thousand_injections_have_no_red_row(tmp_path: Path) -> None:
    results = _campaign(tmp_path / "results.jsonl", "--count", "1000", "--every", "10")
    assert len(results) == 1000
    assert {result["kind"] for result in results} == {row.name for row in rows() if row.place == "host"}


@pytest.mark.nightly
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
@pytest.mark.skipif(bool(own_engine.missing()), reason="no engine can be started here")
def test_hundred_injections_in_containers_have_no_red_row(tmp_path: Path) -> None:
    results = _campaign(tmp_path / "results.jsonl", "--count", "100", "--every", "10", "--places", "docker")
    assert len(results) == 100


@pytest.mark.nightly
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
@pytest.mark.skipif(bool(real.missing()), reason="there can be no machine here")
def test_fifty_injections_in_the_machine_have_no_red_row(tmp_path: Path) -> None:
    results = _campaign(tmp_path / "results.jsonl", "--count", "50", "--every", "10", "--places", "vm")
    assert len(results) == 50


@pytest.mark.nightly
@pytest.mark.skipif(not may_make_mounts(), reason="needs the right to make mounts, for a disk that fills")
def test_two_hundred_injections_in_a_farm_have_no_red_row(tmp_path: Path) -> None:
    results = _campaign(tmp_path / "results.jsonl", "--count", "200", "--every", "10", "--places", "farm")
    assert len(results) == 200
