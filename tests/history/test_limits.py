# SPDX-License-Identifier: Apache-2.0
"""Limits that are relative to a baseline: they fail hil with figure, limit and the commit that crossed it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import project

__all__ = ["project"]

_SUITE = """
def test_it(record_model, compile_for_board, firmware, session, project_model):
    library = compile_for_board(project_model.load())
    image = firmware([library])
    samples, labels = project_model.samples()
    runs = [session(image).run(library.name, [sample]) for sample in samples[:1]]
    record_model("digits", image, runs, executor="host-driven", labels=labels[:1])
"""


def _committed(folder: Path, what: str) -> str:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-qm", what, "--allow-empty"], cwd=folder, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()


def _cases(folder: Path) -> dict[str, tuple[str, str]]:
    tests = json.loads((folder / "build" / "reports" / "latest" / "report.json").read_text())["tests"]
    return {test["id"]: (test["outcome"], test["message"]) for test in tests}


@pytest.mark.slow
def test_a_limit_that_is_crossed_fails_the_run_and_names_figure_limit_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert inv("init", ".").returncode == 0
    (tmp_path / "hil" / "test_models.py").write_text(_SUITE)
    text = (tmp_path / "utvm.yaml").read_text().replace("flash: 65536", "flash: +1 %")
    (tmp_path / "utvm.yaml").write_text(text)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    good = _committed(tmp_path, "first")
    limit = "utvm.yaml::digits:flash"
    done = inv("hil", "--board", "host")
    assert done.returncode == 0, done.stdout
    assert _cases(tmp_path)[limit] == (
        "skipped",
        "utvm-baseline.yaml has no flash of digits on PROCESS host: history.changes --accept writes it",
    )
    assert "the baseline is written" in inv("history.changes", "--accept").stdout
    baseline = tmp_path / "utvm-baseline.yaml"
    assert inv("hil", "--board", "host").returncode == 0
    assert _cases(tmp_path)[limit][0] == "passed"
    # The figure stays, and what it may be shrinks: as if the model had grown by a twentieth.
    (model,) = json.loads((tmp_path / "build/reports/latest/report.json").read_text())["models"]
    flash = model["flash_bytes"]
    assert f"flash: {flash}" in baseline.read_text()
    baseline.write_text(baseline.read_text().replace(str(flash), str(flash * 20 // 21)))
    _committed(tmp_path, "second")
    done = inv("hil", "--board", "host")
    assert done.returncode == 1
    outcome, message = _cases(tmp_path)[limit]
    assert outcome == "failed"
    assert message.startswith(
        f"flash is {flash:,} on PROCESS host, and at most {flash * 20 // 21 * 1.01:,.0f} is asked"
    )
    assert good[:12] not in message  # it was above this limit, too
    assert "digits:flash" in done.stdout
    baseline.write_text("baseline: [1]\n")
    done = inv("hil", "--board", "host")
    assert done.returncode == 2
    assert _cases(tmp_path)["utvm.yaml::limits"][0] == "error"


def test_accepting_needs_a_project(tmp_path: Path, project: Path) -> None:
    assert inv("history.changes", "--accept").returncode == 2
    for wrong in ("1 %", "+x %", "-1 %"):
        (project / "utvm.yaml").write_text(
            f"boards: [{{board: host}}]\nmodels: {{m: {{file: m.onnx, samples: s.npz, flash: '{wrong}'}}}}\n"
        )
        assert "models.m.flash" in inv("hil").stderr
