# SPDX-License-Identifier: Apache-2.0
"""A board on which nobody counts: its suites pass or say why not, and nothing is a 0 that was not counted."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """Return the folder of a board like mps2-an385 on which no unit of the core and no timer counts."""
    known = (ROOT / "utvm" / "boards" / "mps2-an385" / "board.yaml").read_text()
    known = re.sub(r"(?m)^cycle_counter: .*", "cycle_counter: none", known)
    known = re.sub(r"(?m)^counter_hz: .*\n", "", known).replace("name: mps2-an385", "name: silent", 1)
    (tmp_path / "silent").mkdir()
    (tmp_path / "silent" / "board.yaml").write_text(known)
    return tmp_path / "silent"


def test_suites_skip_what_is_about_counts_and_report_none(silent: Path, tmp_path: Path) -> None:
    suites = "counter,rpc,rpc_faults,standing_alone"
    done = inv("hil", "--board", silent, "--suite", suites, "--report-dir", tmp_path / "reports")
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = {file.resolve() for file in (tmp_path / "reports").glob("*/report.json")}
    report = json.loads(file.read_text())
    why = {test["id"].partition("[")[0]: test["message"] for test in report["tests"] if test["outcome"] == "skipped"}
    lacking = "not on this board: it has no counter"
    assert why.pop("standing_alone::test_it_says_why_it_was_reset") == "not on this board: it has no reset cause"
    assert set(why.values()) == {lacking}
    assert {name.partition("::")[0] for name in why} == {"counter", "rpc", "rpc_faults"}
    assert '"instructions": 0' not in file.read_text()


def test_commands_leave_out_what_nobody_counted(silent: Path, tmp_path: Path) -> None:
    done = inv("model.run", "--model", _MODEL, "--board", silent, "--json", tmp_path / "run.json")
    assert done.returncode == 0, done.stderr
    assert "instructions" not in done.stdout + (tmp_path / "run.json").read_text()
    for words in (("model.profile", "--model"), ("model.tune", "--model")):
        done = inv(*words, _MODEL, "--board", silent, cwd=tmp_path)
        assert done.returncode == 2
        assert "silent has no counter" in done.stderr
        assert "Traceback" not in done.stderr
