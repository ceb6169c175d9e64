# SPDX-License-Identifier: Apache-2.0
"""The commit that did it, found by runs between the last good and the first bad one."""

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
    samples, labels = (each[:{count}] for each in project_model.samples())
    runs = [session(image).run(library.name, [sample]) for sample in samples]
    record_model("digits", image, runs, executor="host-driven", labels=labels)
"""


def _git(*words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    return subprocess.check_output(command, text=True).strip()


@pytest.mark.slow
def test_failing_commit_is_named_and_the_checkout_stays(project: Path) -> None:
    _is_named(project)


@pytest.mark.nightly
def test_a_farm_is_asked_for_it(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_hosts(tmp_path / "farm", "host", "stm32f746") as farm:
        monkeypatch.setenv("LG_COORDINATOR", farm.address)
        said = _is_named(project, "--in", "farm")
        with farm.client() as client:
            (desk,) = [each for each in client.call("list")["places"] if each["place"] == "desk-host-1"]
    assert "on host" in said and not desk["holder"]


def _is_named(project: Path, *where: str) -> str:
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
    done = inv("history.bisect", "small::test_it", *where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"first bad: {commits[2]}\n" in done.stdout
    assert done.stdout.endswith(": number 2\n")
    assert _git("status", "--porcelain") == ""
    assert _git("worktree", "list").count("\n") == 0
    return done.stdout


@pytest.mark.nightly
def test_the_commit_since_which_a_figure_is_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    done = inv("history.bisect", "digits:samples")
    assert done.returncode == 0, done.stderr
    assert f"first bad: {commits[2]}\n" in done.stdout
    assert _git("worktree", "list").count("\n") == 0


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "said"), [("digits:flash_bytes", "no figures of digits"), ("test_x", "has no test")])
def test_what_the_history_does_not_know_is_refused(project: Path, wrong: str, said: str) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text("def test_it():\n    pass\n")
    assert inv("hil").returncode == 0
    done = inv("history.bisect", wrong)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
