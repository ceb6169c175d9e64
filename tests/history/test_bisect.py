# SPDX-License-Identifier: Apache-2.0
"""The commit that caused a failure, found by runs between the last good and the first bad commit."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.farm.farms import two_hosts
from tests.history.reports import project

__all__ = ["project"]


_MODEL = """
def test_it(record_model, compile_for_board, firmware, session, project_model):
    library = compile_for_board(project_model.load())
    image = firmware([library])
    samples, labels = (array[:{count}] for array in project_model.samples())
    runs = [session(image).run(library.name, [sample]) for sample in samples]
    record_model("digits", image, runs, executor="host-driven", labels=labels)
"""


def _git(*words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    return subprocess.check_output(command, text=True).strip()


@pytest.mark.slow
def test_failing_commit_is_found_and_the_checkout_stays(project: Path) -> None:
    _bisect_a_test(project)


@pytest.mark.nightly
def test_bisection_runs_in_a_farm(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_hosts(tmp_path / "farm", "host", "stm32f746") as farm:
        monkeypatch.setenv("LG_COORDINATOR", farm.address)
        output = _bisect_a_test(project, "--in", "farm")
        with farm.client() as client:
            (desk,) = [place for place in client.call("list")["places"] if place["place"] == "desk-host-1"]
    assert "on host" in output and not desk["holder"]


def _bisect_a_test(project: Path, *options: str) -> str:
    suite = project / "hil" / "test_small.py"
    suite.parent.mkdir()
    (project / ".gitignore").write_text("build/\n__pycache__/\nfarm/\n")
    _git("init", "-q", ".")
    commits = []
    for number, text in enumerate(["3 == 3", "3 == 3 ", "3 == 4", "3 == 5"]):
        suite.write_text(f"def test_it():\n    assert {text}\n")
        (project / "number").write_text(str(number))
        _git("add", "-A")
        _git("commit", "-qm", f"number {number}")
        commits.append(_git("rev-parse", "HEAD"))
        if number in (0, 3):
            assert inv("hil").returncode == (number == 3)
    completed = inv("history.bisect", "small::test_it", *options)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert f"first bad: {commits[2]}\n" in completed.stdout
    assert "a run halves those that are left" in completed.stdout.splitlines()[1]
    assert completed.stdout.endswith(": number 2\n")
    assert _git("status", "--porcelain") == ""
    assert _git("worktree", "list").count("\n") == 0
    return completed.stdout


@pytest.mark.nightly
def test_commit_that_changed_a_figure_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert inv("init", ".").returncode == 0
    _git("init", "-q", ".")
    commits = []
    for number, count in enumerate((1, 1, 2, 2)):
        (tmp_path / "hil" / "test_models.py").write_text(_MODEL.format(count=count))
        (tmp_path / "number").write_text(str(number))
        _git("add", "-A")
        _git("commit", "-qm", f"number {number}")
        commits.append(_git("rev-parse", "HEAD"))
        if number in (0, 3):
            assert inv("hil", "--board", "host").returncode == 0
    completed = inv("history.bisect", "digits:samples")
    assert completed.returncode == 0, completed.stderr
    assert f"first bad: {commits[2]}\n" in completed.stdout
    assert _git("worktree", "list").count("\n") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"), [("digits:flash_bytes", "no figures of digits"), ("test_x", "has no test")]
)
def test_unknown_test_or_figure_is_refused(project: Path, wrong: str, message: str) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text("def test_it():\n    pass\n")
    assert inv("hil").returncode == 0
    completed = inv("history.bisect", wrong)
    assert (completed.returncode, message in completed.stderr) == (2, True), completed.stderr
