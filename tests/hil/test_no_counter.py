# SPDX-License-Identifier: Apache-2.0
"""A board without a counter: its suites pass or are skipped with a reason, and no figure is a false 0."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


@pytest.fixture
def board_without_counter(tmp_path: Path) -> Path:
    """Return the folder of a board like mps2-an385 without a counter in the core or a timer."""
    text = (ROOT / "utvm" / "boards" / "mps2-an385" / "board.yaml").read_text()
    text = re.sub(r"(?m)^cycle_counter: .*", "cycle_counter: none", text)
    text = re.sub(r"(?m)^counter_hz: .*\n", "", text).replace("name: mps2-an385", "name: silent", 1)
    (tmp_path / "silent").mkdir()
    (tmp_path / "silent" / "board.yaml").write_text(text)
    return tmp_path / "silent"


def test_suites_skip_counts_and_report_none(board_without_counter: Path, tmp_path: Path) -> None:
    suites = "counter,rpc,rpc_faults,standing_alone"
    completed = inv("hil", "--board", board_without_counter, "--suite", suites, "--report-dir", tmp_path / "reports")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    (file,) = {file.resolve() for file in (tmp_path / "reports").glob("*/report.json")}
    report = json.loads(file.read_text())
    reasons = {
        test["id"].partition("[")[0]: test["message"] for test in report["tests"] if test["outcome"] == "skipped"
    }
    reason = "not on this board: it has no counter"
    assert reasons.pop("standing_alone::test_reset_cause_is_reported") == "not on this board: it has no reset cause"
    assert set(reasons.values()) == {reason}
    assert {name.partition("::")[0] for name in reasons} == {"counter", "rpc", "rpc_faults"}
    assert '"instructions": 0' not in file.read_text()


def test_commands_omit_missing_counts(board_without_counter: Path, tmp_path: Path) -> None:
    completed = inv("model.run", "--model", _MODEL, "--board", board_without_counter, "--json", tmp_path / "run.json")
    assert completed.returncode == 0, completed.stderr
    assert "instructions" not in completed.stdout + (tmp_path / "run.json").read_text()
    for words in (("model.profile", "--model"), ("model.tune", "--model")):
        completed = inv(*words, _MODEL, "--board", board_without_counter, cwd=tmp_path)
        assert completed.returncode == 2
        assert "silent has no counter" in completed.stderr
        assert "Traceback" not in completed.stderr
