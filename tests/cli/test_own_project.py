# SPDX-License-Identifier: Apache-2.0
"""A new project, written by ``init``: it is checked, and its suites run and report there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import inv, lint
from utvm.errors import ConfigError
from utvm.hil import project
from utvm.paths import ROOT


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as init writes it, as the current folder."""
    monkeypatch.chdir(tmp_path)
    completed = inv("init", "demo")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.rstrip().endswith(f"Next: cd demo && {ROOT / 'inv'} hil")
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


def test_init_overwrites_nothing(demo: Path) -> None:
    (demo / "utvm.yaml").write_text("mine")
    completed = inv("init", ".")
    assert completed.returncode == 2
    assert "utvm.yaml" in completed.stderr
    assert (demo / "utvm.yaml").read_text() == "mine"


def test_tasks_of_the_editor_are_commands(demo: Path) -> None:
    text = (demo / ".vscode" / "tasks.json").read_text()
    tasks = json.loads("".join(line for line in text.splitlines() if not line.startswith("//")))["tasks"]
    assert len(tasks) == 3
    for task in tasks:
        program, command, *options = task["command"].split()
        assert program == "utvm"
        completed = inv(command, "--help")
        assert all(option in completed.stdout for option in options), completed.stdout


@pytest.mark.slow
def test_workflows_pass_linters(demo: Path) -> None:
    workflow = demo / ".github" / "workflows" / "hil.yaml"
    lint("check-jsonschema", "--builtin-schema=vendor.github-workflows", workflow)
    lint("check-jsonschema", "--builtin-schema=vendor.gitlab-ci", demo / ".gitlab-ci.yml")
    lint("zizmor", "--offline", "--no-config", "--no-progress", workflow)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("accuracy: 0.95", "accuracy: 95", "models.digits.accuracy: Input should be less than or equal to 1 (line 15)"),
        ("accuracy: 0.95", "acuracy: 0.95", "models.digits.acuracy: Extra inputs are not permitted (line 15)"),
        ("{board: host}", "{board: host, suites: [nosuch]}", "boards.1.suites: there is no suite 'nosuch'"),
    ],
)
def test_invalid_key_is_named_with_file_and_line(demo: Path, old: str, new: str, message: str) -> None:
    path = demo / "utvm.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        project.load_project()
    assert str(path) in caught.value.message
    assert message in caught.value.message


_SUITE = """
def test_passes(board):
    pass
def test_fails():
    assert 1 == 2
"""


@pytest.mark.slow
def test_own_suites_run_by_name_path_and_expression(demo: Path) -> None:
    (demo / "hil" / "test_mine.py").write_text(_SUITE.replace("board", ""))
    command = ("hil", "--board", "host")

    def run_suites(*words: str) -> dict[str, str]:
        inv(*command, *words)
        report = json.loads((demo / "build" / "reports" / "latest" / "report.json").read_text())
        return {test["id"].rpartition("::")[2]: test["outcome"] for test in report["tests"]}

    assert run_suites("--suite", "mine") == {"test_passes": "passed", "test_fails": "failed"}
    assert run_suites("--last-failed", "--suite", "mine") == {"test_fails": "failed"}
    assert run_suites("--suite", "hil/test_mine.py::test_passes") == {"test_passes": "passed"}
    assert run_suites("--suite", "mine", "-k", "passes") == {"test_passes": "passed"}


def test_mixture_of_suites_is_refused(demo: Path) -> None:
    completed = inv("hil", "--board", "host", "--suite", "models,health")
    assert completed.returncode == 2
    assert "separate runs" in completed.stderr


@pytest.mark.slow
def test_first_board_of_a_project_is_the_default(demo: Path) -> None:
    completed = inv("hil")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((demo / "build" / "reports" / "latest" / "report.json").read_text())
    assert report["board"]["name"] == "stm32f746"
    assert [model["accuracy"] for model in report["models"]] == [0.99]


@pytest.mark.slow
def test_exceeded_limit_fails_with_the_figure(demo: Path) -> None:
    path = demo / "utvm.yaml"
    path.write_text(path.read_text().replace("flash: 65536", "flash: 1000"))
    completed = inv("hil", "--board", "host")
    assert completed.returncode == 1
    assert "bytes, and the limit is 1000" in completed.stdout


@pytest.mark.nightly
def test_nightly_report_is_in_the_project(demo: Path) -> None:
    completed = inv("nightly", "--only", "host")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((demo / "build" / "reports" / "nightly" / "latest" / "nightly.json").read_text())
    assert [board["verdict"] for board in report["boards"]] == ["passed"]


def test_plugin_does_nothing_without_a_board(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import sys\n\ndef test_x():\n    assert not {'tvm', 'pydantic', 'utvm.boards'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-m", "pytest", "-putvm.hil.plugin", f"--rootdir={tmp_path}", tmp_path]
    completed = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 0, completed.stdout
    assert "1 passed" in completed.stdout
    assert not (tmp_path / "build").exists()
