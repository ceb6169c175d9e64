# SPDX-License-Identifier: Apache-2.0
"""A project of one's own: written by ``init``, checked, and its suites run with the report in it."""

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
    """A project as init writes it; it is the current folder."""
    monkeypatch.chdir(tmp_path)
    done = inv("init", "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(f"Next: cd demo && {ROOT / 'inv'} hil")
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


def test_init_writes_over_nothing(demo: Path) -> None:
    (demo / "utvm.yaml").write_text("mine")
    done = inv("init", ".")
    assert done.returncode == 2
    assert "utvm.yaml" in done.stderr
    assert (demo / "utvm.yaml").read_text() == "mine"


def test_the_written_workflows_pass_their_linters(demo: Path) -> None:
    workflow = demo / ".github" / "workflows" / "hil.yaml"
    lint("check-jsonschema", "--builtin-schema=vendor.github-workflows", workflow)
    lint("check-jsonschema", "--builtin-schema=vendor.gitlab-ci", demo / ".gitlab-ci.yml")
    lint("zizmor", "--offline", "--no-config", "--no-progress", workflow)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("accuracy: 0.95", "accuracy: 95", "models.digits.accuracy: Input should be less than or equal to 1 (line 15)"),
        ("accuracy: 0.95", "acuracy: 0.95", "models.digits.acuracy: Extra inputs are not permitted (line 15)"),
        ("{board: host}", "{board: host, suites: [nosuch]}", "boards.1.suites: there is no suite 'nosuch'"),
    ],
)
def test_a_wrong_key_is_named_with_its_file_and_line(demo: Path, old: str, new: str, said: str) -> None:
    path = demo / "utvm.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        project.load_project()
    assert str(path) in caught.value.message
    assert said in caught.value.message


_SUITE = """
def test_passes(board):
    pass
def test_fails():
    assert 1 == 2
"""


@pytest.mark.slow
def test_own_suites_run_by_name_path_and_expression(demo: Path) -> None:
    (demo / "hil" / "test_mine.py").write_text(_SUITE.replace("board", ""))
    where = ("hil", "--board", "host")

    def ran(*words: str) -> dict[str, str]:
        inv(*where, *words)
        report = json.loads((demo / "build" / "reports" / "latest" / "report.json").read_text())
        return {each["id"].rpartition("::")[2]: each["outcome"] for each in report["tests"]}

    assert ran("--suite", "mine") == {"test_passes": "passed", "test_fails": "failed"}
    assert ran("--last-failed", "--suite", "mine") == {"test_fails": "failed"}
    assert ran("--suite", "hil/test_mine.py::test_passes") == {"test_passes": "passed"}
    assert ran("--suite", "mine", "-k", "passes") == {"test_passes": "passed"}


def test_a_mixture_of_own_suites_and_utvm_s_is_refused(demo: Path) -> None:
    done = inv("hil", "--board", "host", "--suite", "models,health")
    assert done.returncode == 2
    assert "separate runs" in done.stderr


@pytest.mark.slow
def test_the_first_board_of_a_project_is_its_own(demo: Path) -> None:
    done = inv("hil")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((demo / "build" / "reports" / "latest" / "report.json").read_text())
    assert report["board"]["name"] == "stm32f746"
    assert [model["accuracy"] for model in report["models"]] == [0.99]


@pytest.mark.slow
def test_a_limit_that_is_broken_fails_with_the_figure(demo: Path) -> None:
    path = demo / "utvm.yaml"
    path.write_text(path.read_text().replace("flash: 65536", "flash: 1000"))
    done = inv("hil", "--board", "host")
    assert done.returncode == 1
    assert "bytes, and the limit is 1000" in done.stdout


@pytest.mark.nightly
def test_a_night_of_the_project_is_reported_in_it(demo: Path) -> None:
    done = inv("nightly", "--only", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((demo / "build" / "reports" / "nightly" / "latest" / "nightly.json").read_text())
    assert [board["verdict"] for board in report["boards"]] == ["passed"]


def test_the_plugin_does_nothing_where_no_board_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import sys\n\ndef test_x():\n    assert not {'tvm', 'pydantic', 'utvm.boards'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-m", "pytest", "-putvm.hil.plugin", f"--rootdir={tmp_path}", tmp_path]
    done = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert not (tmp_path / "build").exists()
