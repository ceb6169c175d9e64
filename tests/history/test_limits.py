# SPDX-License-Identifier: Apache-2.0
"""Limits relative to a baseline: a failure names figure, limit and the commit that crossed it."""

import json
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.cli.running import inv
from tests.history.reports import BAD, GOOD, WORSE, Query, project, query, report_of
from utvm.drivers import BoardIdentity
from utvm.firmware import Firmware
from utvm.hil.limits import check_limits
from utvm.hil.results import ModelResult

__all__ = ["project", "query"]

_SUITE = """
def test_it(record_model, compile_for_board, firmware, session, project_model):
    library = compile_for_board(project_model.load())
    image = firmware([library])
    samples, labels = project_model.samples()
    runs = [session(image).run(library.name, [sample]) for sample in samples[:1]]
    record_model("digits", image, runs, executor="host-driven", labels=labels[:1])
"""


def _commit(folder: Path, what: str) -> str:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-qm", what, "--allow-empty"], cwd=folder, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()


def _cases(folder: Path) -> dict[str, tuple[str, str]]:
    tests = json.loads((folder / "build" / "reports" / "latest" / "report.json").read_text())["tests"]
    return {test["id"]: (test["outcome"], test["message"]) for test in tests}


@pytest.mark.slow
def test_crossed_limit_fails_and_names_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert inv("init", ".").returncode == 0
    (tmp_path / "hil" / "test_models.py").write_text(_SUITE)
    text = (tmp_path / "utvm.yaml").read_text().replace("flash: 65536", "flash: +1 %")
    (tmp_path / "utvm.yaml").write_text(text)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    good = _commit(tmp_path, "first")
    limit = "utvm.yaml::digits:flash"
    completed = inv("hil", "--board", "host")
    assert completed.returncode == 0, completed.stdout
    assert _cases(tmp_path)[limit] == (
        "skipped",
        "utvm-baseline.yaml has no flash of digits on PROCESS host; history.changes --accept adds it",
    )
    assert "the baseline is written" in inv("history.changes", "--accept").stdout
    baseline = tmp_path / "utvm-baseline.yaml"
    assert inv("hil", "--board", "host").returncode == 0
    assert _cases(tmp_path)[limit][0] == "passed"
    # A smaller baseline, as if the model had grown by a twentieth.
    (model,) = json.loads((tmp_path / "build/reports/latest/report.json").read_text())["models"]
    flash = model["flash_bytes"]
    assert f"flash: {flash}" in baseline.read_text()
    baseline.write_text(baseline.read_text().replace(str(flash), str(flash * 20 // 21)))
    _commit(tmp_path, "second")
    completed = inv("hil", "--board", "host")
    assert completed.returncode == 1
    outcome, message = _cases(tmp_path)[limit]
    assert outcome == "failed"
    assert message.startswith(f"flash is {flash:,} on PROCESS host, and the limit is {flash * 20 // 21 * 1.01:,.0f}")
    assert good[:12] not in message  # it was above this limit, too
    assert "digits:flash" in completed.stdout
    baseline.write_text("baseline: [1]\n")
    completed = inv("hil", "--board", "host")
    assert completed.returncode == 2
    assert _cases(tmp_path)["utvm.yaml::limits"][0] == "error"


_PROJECT = """
boards: [{board: host}]
models:
  m: {file: m.onnx, samples: s.npz, flash: "+10 %", ram: "+50 %"}
  n: {file: n.onnx, samples: s.npz, flash: 4000}
"""
_BOARD = BoardIdentity("stm32f746", "virtual", "", "")


def _result(name: str, **figures: int | None) -> ModelResult:
    return ModelResult(None, name, "aot", "", figures, cast(Firmware, None))


def _check(*models: ModelResult, commit: str | None = None) -> dict[str, tuple[str, str]]:
    cases = check_limits(_BOARD, models, commit)
    assert all(case.duration_s == 0 for case in cases)
    return {case.node: (case.outcome.value, case.message) for case in cases}


def test_worst_figure_of_each_model_meets_its_limit(project: Path) -> None:
    assert _check(_result("m", flash_bytes=1)) == {}
    (project / "utvm.yaml").write_text(_PROJECT)
    node = "utvm.yaml::m:flash"
    assert _check(_result("m", flash_bytes=1))[node][0] == "skipped"
    values = {"VIRTUAL stm32f746": {"m": {"flash": 1000, "ram": 2000}}, "PROCESS host": {"m": {"flash": 1}}}
    baseline = project / "utvm-baseline.yaml"
    baseline.write_text(yaml.safe_dump({"baseline": values}))
    ram = ("passed", "")
    assert _check(_result("m", flash_bytes=1100, ram_bytes=3000)) == {node: ("passed", ""), "utvm.yaml::m:ram": ram}
    above = "flash is 1,101 on VIRTUAL stm32f746, and the limit is 1,100, +10 % of 1,000"
    # Missing figures are left out, and other models do not count.
    models = [_result("m", flash_bytes=None), _result("n", flash_bytes=9999), _result("x", flash_bytes=9999)]
    assert _check(*models) == {}
    assert _check(*models, _result("m", flash_bytes=900), _result("m", flash_bytes=1101)) == {node: ("failed", above)}
    assert _check(_result("m", flash_bytes=1101, ram_bytes=9), commit="ab" * 20) == {
        node: ("failed", f"{above}; with commit abababababab"),
        "utvm.yaml::m:ram": ram,
    }
    baseline.write_text("baseline: [1]\n")
    ((name, (outcome, message)),) = _check(_result("m", flash_bytes=1)).items()
    assert (name, outcome) == ("utvm.yaml::limits", "error")
    assert "utvm-baseline.yaml" in message


def test_commit_that_crossed_a_limit_is_named_and_accepted(query: Query) -> None:
    def run(day: int, commit: str, flash: int, **options: Any) -> Any:
        return report_of(day, commit, models={"m": {"flash_bytes": flash}, "other": {}}, **options)

    project = Path.cwd()
    (project / "utvm.yaml").write_text(_PROJECT)
    other = run(9, GOOD, 77, board="nrf52840dk")
    reports = (run(3, GOOD, 1000), run(4, GOOD, 1090), run(5, BAD, 1200), run(6, WORSE, 1300), other)
    query("history.changes", reports=reports)
    (project / "utvm-baseline.yaml").write_text("baseline: {VIRTUAL stm32f746: {m: {flash: 1000}}}\n")
    messages = {
        flash: _check(_result("m", flash_bytes=flash), commit="dd" * 20)["utvm.yaml::m:flash"][1].partition("; ")[2]
        for flash in (1101, 1300)
    }
    assert set(messages.values()) == {f"last kept by commit {GOOD[:12]}, crossed by {BAD[:12]}"}
    assert "the baseline is written" in inv("history.changes", "--accept").stdout
    assert yaml.safe_load((project / "utvm-baseline.yaml").read_text()) == {
        "baseline": {
            "VIRTUAL nrf52840dk": {"m": {"flash": 77, "ram": 11280}},
            "VIRTUAL stm32f746": {"m": {"flash": 1300, "ram": 11280}},
        }
    }
    # The newest run is now within the limit, which the current commit crosses.
    message = _check(_result("m", flash_bytes=1431), commit="dd" * 20)["utvm.yaml::m:flash"][1]
    assert message.endswith(f"; last kept by commit {WORSE[:12]}, crossed by dddddddddddd")


def test_accepting_needs_a_project(tmp_path: Path, project: Path) -> None:
    assert inv("history.changes", "--accept").returncode == 2
    for wrong in ("1 %", "+x %", "-1 %"):
        (project / "utvm.yaml").write_text(
            f"boards: [{{board: host}}]\nmodels: {{m: {{file: m.onnx, samples: s.npz, flash: '{wrong}'}}}}\n"
        )
        assert "models.m.flash" in inv("hil").stderr
