# SPDX-License-Identifier: Apache-2.0
"""A project of one's own: written by ``init``, checked, and its suites run with the report in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.cli.running import inv
from utvm.errors import ConfigError
from utvm.hil import project
from utvm.paths import ROOT


def _linted(program: str, *words: object) -> None:
    command = [Path(sys.executable).with_name(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


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
    _linted("check-jsonschema", "--builtin-schema=vendor.github-workflows", workflow)
    _linted("check-jsonschema", "--builtin-schema=vendor.gitlab-ci", demo / ".gitlab-ci.yml")
    _linted("zizmor", "--offline", "--no-config", "--no-progress", workflow)


class _HostedCI:
    """Runs the steps of a written workflow, each job in a fresh folder; only its cache remains."""

    def __init__(self, project: Path, folder: Path) -> None:
        self._project, self._folder = project, folder
        self._cache: dict[str, Path] = {}
        self._jobs = 0
        command = folder / "bin" / "utvm"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{ROOT}/inv" "$@"\n')
        command.chmod(0o755)

    def _begin(self, **variables: str) -> tuple[Path, dict[str, str]]:
        self._jobs += 1
        work = self._folder / f"job-{self._jobs}"
        shutil.copytree(self._project, work)
        path = f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return work, {**os.environ, "PATH": path, **variables}

    def _restore(self, work: Path, prefix: str) -> None:
        newest = [saved for key, saved in self._cache.items() if key.startswith(prefix)][-1:]
        for saved in newest:
            shutil.copytree(saved, work, dirs_exist_ok=True)

    def _save(self, work: Path, key: str, paths: Sequence[str]) -> None:
        saved = self._folder / f"cache-{self._jobs}"
        for path in paths:
            (saved / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(work / path, saved / path)
        self._cache[key] = saved

    def github(self, commit: str, event: str = "schedule", base: str = "") -> tuple[bool, str]:
        """Return whether the job passed, and its summary."""
        workflow = yaml.safe_load((self._project / ".github/workflows/hil.yaml").read_text())
        work, environment = self._begin(GITHUB_SHA=commit, GITHUB_STEP_SUMMARY="summary.md", BASE=base)
        passed = True
        for step in workflow["jobs"]["hil"]["steps"]:
            action, condition = step.get("uses", ""), step.get("if", "")
            if "install" in step.get("name", "").lower() or (not passed and condition != "always()"):
                continue
            if "schedule" in condition and (event == "schedule") != ("==" in condition):
                continue
            if action.startswith("actions/cache/restore"):
                self._restore(work, step["with"]["restore-keys"])
            elif action.startswith("actions/cache/save"):
                paths = [path for path in step["with"]["path"].split() if not path.startswith("~")]
                self._save(work, f"utvm-{self._jobs}", paths)
            elif "run" in step:
                done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=work, env=environment, check=False)
                passed &= done.returncode == 0
        return passed, (work / "summary.md").read_text()

    def gitlab(self, commit: str, base: str = "") -> tuple[bool, str]:
        job = yaml.safe_load((self._project / ".gitlab-ci.yml").read_text())["hil"]
        variables = {"CI_PIPELINE_SOURCE": "schedule", "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
        work, environment = self._begin(CI_COMMIT_SHA=commit, **variables)
        self._restore(work, "utvm-")
        passed = True
        for script in ("script", "after_script"):
            done = subprocess.run(
                ["bash", "-e", "-c", "\n".join(job[script])], cwd=work, env=environment, check=False
            )
            passed &= done.returncode == 0
        self._save(work, "utvm-main", [path for path in job["cache"]["paths"] if "sqlite" in path])
        return passed, (work / "build/reports/summary.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("service", ["github", pytest.param("gitlab", marks=pytest.mark.nightly)])
def test_hosted_jobs_remember_earlier_ones(service: str, demo: Path, tmp_path: Path) -> None:
    (demo / "utvm.yaml").write_text("boards:\n  - {board: host}\n")
    hosted = _HostedCI(demo, tmp_path)
    job = getattr(hosted, service)
    suite = demo / "hil" / "test_models.py"
    good, bad, request = "1" * 40, "2" * 40, "3" * 40
    suite.write_text("def test_a():\n    pass\n")
    passed, summary = job(good)
    assert (passed, summary.startswith("## Boards: passed\n"), "changed" in summary) == (True, True, False)
    suite.write_text("def test_a():\n    assert 1 == 2\n")
    passed, summary = job(bad)
    change = f"| test, models::test_a | PROCESS host | passed | failed | {good[:8]}..{bad[:8]} |"
    assert (passed, "| models::test_a | PROCESS host |" in summary, change in summary) == (False, True, True)
    # A request on top of the bad commit changes nothing; of a base that was never run, nothing is known.
    for base, known in ((bad, False), ("4" * 40, True)):
        passed, summary = job(request, base=base)
        assert (passed, change in summary) == (False, known), summary


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "accuracy: 0.95",
            "accuracy: 95",
            "models.digits.accuracy: Input should be less than or equal to 1 (line 15)",
        ),
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
    assert "two runs" in done.stderr


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
    assert "bytes, and at most 1000 is asked" in done.stdout


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
